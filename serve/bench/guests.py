"""Guests who send what nobody should: mutated images, archives, cards and half-read streams, each for ever."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable

import httpx
import numpy as np
from PIL import Image

from rayctsl.card import CARD
from serve.bench.instance import DATASET, Instance

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SIDE = 24
BAD_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "$(id)",
    "../x",
    [],
    {},
    [[[]]],
    "\ud800",
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out, doubled or cut off; now and then none."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 8, 40))):
        at = rng.randrange(len(changed) + 1)
        piece = changed[at : at + rng.choice((1, 4, 64))]
        replacement = rng.choice((rng.randbytes(len(piece)), b"", piece * 2, b"\xff" * len(piece), b"\0" * len(piece)))
        changed[at : at + len(piece)] = replacement
    return bytes(changed[: rng.randrange(len(changed) + 1)] if changed and rng.random() < 0.15 else changed)


def make_image(kind: str, rng: random.Random, width: int = SIDE, height: int = SIDE) -> bytes:
    sink = io.BytesIO()
    mode = rng.choice(("RGB", "L") if kind == "JPEG" else ("RGB", "L", "P", "RGBA"))
    Image.effect_noise((width, height), 80).convert(mode).save(sink, kind)
    return sink.getvalue()


def make_archive(rng: random.Random) -> bytes:
    """A small zip, tar or npz of two classes, as users send them."""
    sink, kind = io.BytesIO(), rng.choice(("zip", "tar", "gz", "npz"))
    if kind == "npz":
        pixels = np.frombuffer(rng.randbytes(12 * 64), np.uint8).reshape(12, 8, 8)
        labels = np.arange(12) % 2
        np.savez(sink, x_train=pixels, y_train=labels, x_test=pixels[:4], y_test=labels[:4])
        return sink.getvalue()
    files = {f"{'ab'[n % 2]}/{n}.png": make_image("PNG", rng, 8, 8) for n in range(12)}
    if rng.random() < 0.3:
        files[rng.choice(("../up.png", "/etc/x.png", "a/\0.png", "a" * 300, "con/..", "a/b/c/d.png"))] = b"x"
    if kind == "zip":
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                zipped.writestr(name, data)
        return sink.getvalue()
    with tarfile.open(fileobj=sink, mode="w:gz" if kind == "gz" else "w") as packed:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def make_card(good: dict[str, object], rng: random.Random) -> bytes:
    """A card with a value or two of the wrong kind, deep inside or at the top; or broken JSON."""
    card = json.loads(json.dumps(good))
    for _ in range(rng.choice((0, 1, 1, 2))):
        inside = rng.choice([card, *(value for value in card.values() if isinstance(value, dict) and value)])
        inside[rng.choice([*inside, "new"])] = rng.choice(BAD_VALUES)
    data = json.dumps(card).encode()
    return mutate(data, rng) if rng.random() < 0.5 else data


class Guests:
    """What they need to know, and how often each of them was answered."""

    def __init__(self, service: Instance, job: str, seed: int):
        self.service, self.job, self.seed = service, job, seed
        self.done = threading.Event()
        self.asked: dict[str, int] = {}
        self.surprises: list[str] = []

    def start(self) -> list[threading.Thread]:
        ways = (self.send_image, self.send_archive, self.leave_card, self.read_stream)
        threads = [threading.Thread(target=self._go_on, args=(way,), daemon=True) for way in ways]
        for thread in threads:
            thread.start()
        return threads

    def _go_on(self, way: Callable[[httpx.Client, random.Random], None]) -> None:
        rng, name = random.Random(f"{way.__name__} {self.seed}"), way.__name__
        with httpx.Client(base_url=self.service.url, timeout=60.0, trust_env=False) as http:
            while not self.done.is_set():
                try:
                    way(http, rng)
                except httpx.RemoteProtocolError:
                    pass  # a request that makes no sense may be answered by closing the connection
                except Exception as error:
                    self.surprises.append(f"{name}: {type(error).__name__}: {error}"[:300])
                self.asked[name] = self.asked.get(name, 0) + 1

    def send_image(self, http: httpx.Client, rng: random.Random) -> None:
        kind = rng.choice(KINDS)
        side = rng.choice((SIDE, 1, 3000))
        data = mutate(make_image(kind, rng, SIDE if side == 3000 else side, side), rng)
        form = {"files": {"image": ("x", data)}} if rng.random() < 0.2 else {"content": data}
        named = {"content-type": f"image/{rng.choice(KINDS).lower()}"} if "content" in form else {}
        http.post(f"/finetune/{self.job}/predict", headers=named, **form)

    def send_archive(self, http: httpx.Client, rng: random.Random) -> None:
        name, data = f"guest-{rng.randrange(4)}", make_archive(rng)
        data = data if rng.random() < 0.3 else mutate(data, rng)
        headers = {}
        if rng.random() < 0.3:
            first, last = rng.randrange(len(data) + 2), rng.randrange(len(data) + 2)
            headers["content-range"] = f"bytes {first}-{last}/{rng.choice((len(data), last + 1, 10**14))}"
        http.post("/datasets", params={"name": name, "size": rng.choice((8, 16))}, content=data, headers=headers)
        deadline = time.monotonic() + 60.0
        while http.get(f"/datasets/{name}").json().get("status") == "importing" and time.monotonic() < deadline:
            self.done.wait(0.1)
        for part in ("", "/thumbnail", "/sheet"):
            http.get(f"/datasets/{name}{part}")
        http.delete(f"/datasets/{name}")

    def leave_card(self, http: httpx.Client, rng: random.Random) -> None:
        shelf = self.service.storage / "initializations"
        origin = next(path for path in shelf.iterdir() if not path.name.startswith("guest"))
        folder = shelf / f"guest-{rng.randrange(20)}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        good = {**json.loads((origin / CARD).read_text()), "id": folder.name}
        (folder / CARD).write_bytes(make_card(good, rng))
        for path in ("/initializations", "/initializations?broken=true", "/initializations?q=x", "/api/models"):
            json.loads(http.get(path).text, parse_constant=_refuse)
        for path in (f"/initializations/{folder.name}", f"/initializations/{folder.name}/weights"):
            http.get(path)
        http.post("/finetune", json={"dataset": DATASET, "initialization": folder.name, "steps": 1})
        self.done.wait(0.2)

    def read_stream(self, http: httpx.Client, rng: random.Random) -> None:
        jobs = http.get("/finetune", params={"limit": 20}).json()["data"]
        if not jobs:  # another guest has deleted them all
            self.done.wait(0.2)
            return
        seen = {"last-event-id": str(rng.randrange(10**6))} if rng.random() < 0.5 else {}
        with (
            contextlib.suppress(httpx.TimeoutException),
            http.stream("GET", f"/finetune/{rng.choice(jobs)['id']}/events", headers=seen, timeout=2.0) as answer,
        ):
            for _, _ in zip(answer.iter_bytes(), range(rng.randrange(5)), strict=False):
                pass


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} left the service as JSON")
