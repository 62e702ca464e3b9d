"""The event loop answers everybody, so no request may keep it: not with a disk, not with much to compute.

What is asked goes to an application in this process; the loop's thread is watched, not the clock on the wall.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import io
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from serve.__main__ import leave_alone_what_is_loaded
from serve.bench.instance import DATASET, make_dataset
from serve.bench.listing import fill_initializations, fill_jobs
from serve.settings import Settings
from tests.serve.applications import opened
from tests.stripes import write_pictures

MANY = 1000
MOST_SECONDS = 0.015  # of computing, in one piece
WATCHED = ("open", "os.", "shutil.", "sqlite3.", "pathlib.", "tempfile.")
ALLOWED = ("/dev/", "/proc/", "/sys/")
_seen: list[str] | None = None  # what the loop's thread asked of a disk, while somebody wants to know
_loop_thread = 0


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is None or threading.get_ident() != _loop_thread or not event.startswith(WATCHED):
        return
    what = arguments[0] if arguments else ""
    if event in ("open", "os.killpg") and isinstance(what, int):
        return  # a pipe to the process that imports what was sent, and that process's end: no disk, and at any time
    if not str(what).startswith(ALLOWED):
        _seen.append(f"{event} {what}")


sys.addaudithook(_note)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    folder = tmp_path_factory.mktemp("many")
    make_dataset(folder / "data")
    first = fill_initializations(folder / "storage", MANY)
    fill_jobs(folder, first, 200)
    settings = Settings(storage=str(folder / "storage"), data_root=str(folder / "data"), address="http://127.0.0.1:1")
    with opened(settings) as made:
        yield made


def requests(application: FastAPI, archive: bytes) -> list[tuple[str, str, dict[str, Any]]]:
    """One of every kind: found, not found, refused."""
    service = application.state.service
    job, entry = service.store.page(1)[0].id, service.index.newest_first[0]
    near = f"{entry.id[:-1]}z"
    many_words = " ".join(chr(97 + n % 26) for n in range(100))
    reads = [
        *("/livez", "/readyz", "/metrics", "/openapi.json", "/", "/docs"),
        *("/initializations", "/initializations?sort=size&limit=100", f"/initializations?q={many_words}"),
        *(f"/initializations/{entry.id}", f"/initializations/{near}", f"/initializations/{entry.id}/weights"),
        *(
            f"/initializations?after={near}",
            "/initializations?broken=true",
            "/api/models",
            f"/api/models/rayctsl/{near}",
        ),
        *(f"/api/models/rayctsl/{entry.id}/tree/main", f"/rayctsl/{entry.id}/resolve/main/phi.safetensors"),
        *("/finetune?limit=100", f"/finetune/{job}", f"/finetune/{job}/events", f"/finetune/{job}/log"),
        *(f"/finetune/{job}/weights", "/comparisons", "/models", "/models/none"),
        *("/datasets", f"/datasets/{DATASET}", f"/datasets/{DATASET}/sheet", f"/datasets/{DATASET}/thumbnail"),
        *("/datasets/none", "/nothing"),
    ]
    body = {"dataset": DATASET, "steps": 1, "initialization": near}
    image = b'--x\r\nContent-Disposition: form-data; name="image"; filename="x.png"\r\n\r\n%b\r\n' % bytes(9 * 2**20)
    form = {"headers": {"content-type": "multipart/form-data; boundary=x"}}
    return [
        *(("GET", path, {}) for path in reads),
        ("POST", "/finetune", {"json": {**body, "initialization": entry.id}}),
        ("POST", "/finetune", {"json": body}),
        ("POST", "/finetune", {"json": {**body, "label": "x" * 60_000}}),
        ("POST", f"/finetune/{job}/predict", {**form, "content": image + b"--x--"}),
        ("POST", f"/finetune/{job}/predictions", {**form, "content": 3 * image + b"--x--"}),
        ("POST", "/comparisons", {"json": {"dataset": DATASET, "initializations": [near, entry.id]}}),
        ("POST", "/datasets?name=sent&size=16", {"content": archive}),
        ("POST", "/datasets?name=cut", {"content": b"x" * 10, "headers": {"content-range": "bytes 0-9/20"}}),
        ("GET", "/datasets/sent", {}),
        ("DELETE", "/datasets/cut", {}),
        ("DELETE", f"/datasets/{DATASET}", {}),
        ("DELETE", f"/finetune/{job}", {}),
    ]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = write_pictures(tmp_path_factory.mktemp("pictures"), count=12, side=16)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for path in sorted(folder.rglob("*.jpg")):
            packed.write(path, str(path.relative_to(folder)))
    return out.getvalue()


@pytest.fixture
def thawed() -> Iterator[None]:
    """After the test garbage is collected as ever."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_no_request_keeps_the_loop(application: FastAPI, archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_alone_what_is_loaded()  # as the service does; or what other tests left is looked at here
    longest, waited = asyncio.run(_ask_everything(application, archive, monkeypatch))
    assert waited == {}
    assert {asked: seconds for asked, seconds in longest.items() if seconds > MOST_SECONDS} == {}


async def _blocks(content: bytes) -> AsyncIterator[bytes]:
    """As a server gets them from a socket: others may have their turn after each."""
    for start in range(0, len(content), 2**16):
        yield content[start : start + 2**16]
        await asyncio.sleep(0)


async def _ask_everything(
    application: FastAPI, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """By request: the longest piece of computing in the loop, and what it asked of a disk."""
    global _seen, _loop_thread
    pieces: list[float] = []
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.events.Handle) -> None:
        started = time.thread_time()
        run(handle)
        pieces.append(time.thread_time() - started)

    service = application.state.service
    await asyncio.to_thread(service.index.refresh)
    longest, waited = dict[str, float](), dict[str, list[str]]()
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60.0) as client:
        await client.get("/livez")  # what the client itself loads
        _loop_thread = threading.get_ident()
        asks = await asyncio.to_thread(requests, application, archive)
        for again in (False, True):  # the first time, modules are loaded
            for method, path, options in asks:
                _seen = []
                pieces.clear()
                with monkeypatch.context() as patch:
                    patch.setattr(asyncio.events.Handle, "_run", timed)
                    content = {"content": _blocks(options["content"])} if "content" in options else {}
                    await asyncio.create_task(client.request(method, path, **{**options, **content}))
                asked, found, _seen = f"{method} {path[:60]}", _seen, None
                longest[asked] = max(pieces)
                if again and found:
                    waited[asked] = found
    await service.uploads.close()
    return longest, waited


@pytest.mark.usefixtures("thawed")
def test_no_full_collection_of_garbage_looks_at_what_was_loaded_at_the_start(application: FastAPI) -> None:
    gc.unfreeze()
    gc.collect()
    whole = _seconds_of(gc.collect)
    leave_alone_what_is_loaded()
    assert _seconds_of(gc.collect) < whole / 10  # all threads stand still for it, 60 ms and more otherwise
    assert gc.get_freeze_count() > 100_000


def _seconds_of(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started
