"""How long lists and cards take with many initializations, many jobs and many clients, and whether memory grows."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from rayctsl.card import CARD, PHI
from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import JobSpec, Source
from rayctsl.registry import Initialization
from serve.bench.instance import DATASET, Instance, make_dataset, make_initialization, resident
from serve.jobs.rows import NewJob
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database

Figures = dict[str, float]


def measure(initializations: int, jobs: int, clients: int, requests: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        folder = Path(name)
        make_dataset(folder / "data")
        first = fill_initializations(folder / "storage", initializations)
        fill_jobs(folder, first, jobs)
        paths = {
            "list": "/initializations?limit=20",
            "card": f"/initializations/{first.id}",
            "jobs": "/finetune?limit=20",
            "datasets": "/datasets",
        }
        with Instance(folder, "--address", "http://127.0.0.1:1").running() as service:
            assert service.process is not None
            for path in paths.values():
                asyncio.run(_load(service.port, path, clients, requests // 10))  # warm
            before = resident(service.process.pid)
            figures = {kind: _figures(service.port, path, clients, requests) for kind, path in paths.items()}
            after = resident(service.process.pid)
    return {
        "initializations": initializations,
        "jobs": jobs,
        "clients": clients,
        "requests": requests,
        **figures,
        "memory_before_mb": round(before, 1),
        "memory_growth_mb": round(after - before, 1),
    }


def _figures(port: int, path: str, clients: int, requests: int) -> Figures:
    started = time.perf_counter()
    seconds = asyncio.run(_load(port, path, clients, requests))
    took = time.perf_counter() - started
    milliseconds = 1000 * np.percentile(seconds, [50, 95, 99, 100])
    names = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    figures = {key: round(float(value), 1) for key, value in zip(names, milliseconds, strict=True)}
    return {"per_s": round(len(seconds) / took, 1), **figures}


def fill_initializations(storage: Path, count: int) -> Initialization:
    first = make_initialization(storage)
    card, phi = first.card.to_json(), first.storage.read(PHI)
    for number in range(1, count):
        folder = storage / "initializations" / f"copy-{number}"
        folder.mkdir()
        (folder / PHI).write_bytes(phi)
        (folder / CARD).write_text(json.dumps({**card, "id": f"{card['id']}-{number}"}))
    return first


def fill_jobs(folder: Path, first: Initialization, count: int) -> None:
    """Jobs that have been cancelled, as a service leaves them."""
    store = JobStore(open_database(f"sqlite:///{folder}/storage/service/jobs.sqlite3"))
    source = Source(id=first.id, sha256=first.card.sha256, path=first.path)
    for number in range(count):
        spec = JobSpec(
            dataset=DATASET,
            data_root=str(folder / "data"),
            initialization=source,
            seed=number,
            compare_with_scratch=False,
            config=FinetuneConfig(steps=100, seeds=1),
        )
        job, _ = store.create(NewJob({"label": f"job {number}"}, spec, "x"), max_queued=1)
        store.change(job, status="cancelled", finished_at=time.time())
    store.close()


async def _load(port: int, path: str, clients: int, requests: int) -> list[float]:
    """Every client keeps one connection and asks again as soon as it is answered."""
    left, seconds = requests, list[float]()

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        while left > 0:
            left -= 1
            started = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds
