"""Hostile archives sent to a running service: what it says, what is left behind, and how it answers meanwhile."""

from __future__ import annotations

import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from rayctsl.jobs.importer import Limits
from serve.bench.hostile import good, hostile, zipped
from serve.bench.instance import Instance, make_initialization

PAUSE_SECONDS = 0.02
IMPORT_SECONDS = 300.0
CUT_AT = 2**16


def prove(files: int) -> dict[str, Any]:
    """Send every kind to a service without Ray; RuntimeError when one is taken, or leaves something behind."""
    limits = Limits()
    kinds = hostile(files=files, most_files=limits.files, unpacked=limits.unpacked_bytes)
    del kinds["too much"]  # gigabytes; the importer's tests have it with a smaller limit
    made = {kind: each.make() for kind, each in kinds.items()}  # before anything is timed
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        folder = Path(name)
        make_initialization(folder / "storage")
        (folder / "data").mkdir()
        with Instance(folder, "--address", "http://127.0.0.1:1").running() as service, Knocker(service.url) as knocker:
            sentences = {kind: _send(service, kind, made[kind], each.sentence) for kind, each in kinds.items()}
            for whole in (True, False):
                _cut(service, whole)
        left = _left(folder)
    if left:
        raise RuntimeError(f"left behind: {left}")
    p50, p99, most = 1000 * np.percentile(knocker.seconds, [50, 99, 100])
    figures = {"livez_p50_ms": p50, "livez_p99_ms": p99, "livez_max_ms": most}
    return {
        "kinds": len(kinds) + 2,
        "files": files,
        "left_behind": len(left),
        "livez_requests": len(knocker.seconds),
        **{key: round(float(value), 1) for key, value in figures.items()},
        "sentences": sentences,
    }


def _send(service: Instance, kind: str, archive: bytes, sentence: str) -> str:
    name = re.sub("[^a-z0-9]+", "-", kind)
    with httpx.Client(base_url=service.url, timeout=120.0, trust_env=False) as client:
        answer = client.post("/datasets", params={"name": name, "size": 16}, content=archive)
        if answer.status_code != 202:
            raise RuntimeError(f"{kind}: {answer.status_code} {answer.text}")
        deadline = time.monotonic() + IMPORT_SECONDS
        while (found := client.get(f"/datasets/{name}").json())["status"] == "importing":
            if time.monotonic() > deadline:
                raise RuntimeError(f"{kind}: the import goes on and on")
            time.sleep(0.1)
        said = check_refused(kind, found, sentence)
        client.delete(f"/datasets/{name}").raise_for_status()
    print(f"{kind}: {said}", flush=True)
    return said


def check_refused(kind: str, found: dict[str, Any], sentence: str) -> str:
    """What was said of an archive; RuntimeError unless it was refused, with its sentence and in one line."""
    said = str(found["error"])
    if found["status"] != "failed" or not re.search(sentence, said) or "\n" in said:
        raise RuntimeError(f"{kind}: {found['status']}, {said}")
    return said


def _cut(service: Instance, whole: bool) -> None:
    """Begin to send and hang up; in pieces, what came is kept for an hour, and can be deleted at once."""
    body, name = zipped(good()) * 400, "whole" if whole else "pieces"
    lines = [f"POST /datasets?name={name} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [] if whole else [f"content-range: bytes 0-{len(body) - 1}/{len(body)}"]
    archive = service.storage / "service" / "inbox" / f"{name}.archive"
    with socket.create_connection(("127.0.0.1", service.port)) as wire:
        wire.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body[:CUT_AT])
        _until(lambda: archive.exists() and archive.stat().st_size > 0)
    if whole:
        _until(lambda: not archive.exists())
        return
    with httpx.Client(base_url=service.url, timeout=60.0, trust_env=False) as client:
        _until(lambda: client.get(f"/datasets/{name}").status_code == 200)
        client.delete(f"/datasets/{name}").raise_for_status()


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not happen")
        time.sleep(0.02)


def _left(folder: Path) -> list[str]:
    """Files of the inbox and the data root; locks are empty and stay."""
    inbox = list((folder / "storage" / "service" / "inbox").glob("*"))
    data = [path for path in (folder / "data").glob("*") if path.name != ".locks"]
    return [path.name for path in inbox + data]


class Knocker:
    """Asks /livez all the time, in a thread."""

    def __init__(self, url: str):
        self.seconds: list[float] = []
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._knock, daemon=True)

    def __enter__(self) -> Knocker:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _knock(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60.0, trust_env=False) as client:
            while not self._stop.wait(PAUSE_SECONDS):
                begun = time.perf_counter()
                client.get("/livez").raise_for_status()
                self.seconds.append(time.perf_counter() - begun)
