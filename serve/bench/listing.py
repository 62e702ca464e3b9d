"""How long `GET /initializations` takes with many initializations and many clients, and whether memory grows."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rayctsl.card import CARD, PHI
from serve.bench.instance import Instance, make_initialization


def measure(num_initializations: int, num_clients: int, num_requests: int, limit: int = 20) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        folder = Path(name)
        _fill(folder / "storage", num_initializations)
        with Instance(folder, "--address", "http://127.0.0.1:1").running() as service:
            assert service.process is not None
            asyncio.run(_load(service.port, num_clients, num_requests // 10, limit))  # warm
            before = _resident(service.process.pid)
            started = time.perf_counter()
            seconds = asyncio.run(_load(service.port, num_clients, num_requests, limit))
            took = time.perf_counter() - started
            after = _resident(service.process.pid)
    milliseconds = 1000 * np.percentile(seconds, [50, 95, 99, 100])
    names = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    return {
        "initializations": num_initializations,
        "clients": num_clients,
        "requests": len(seconds),
        "requests_per_s": round(len(seconds) / took, 1),
        **{key: round(float(value), 1) for key, value in zip(names, milliseconds, strict=True)},
        "memory_before_mb": round(before, 1),
        "memory_after_mb": round(after, 1),
        "memory_growth_mb": round(after - before, 1),
    }


def _fill(storage: Path, count: int) -> None:
    first = make_initialization(storage)
    card, phi = first.card.to_json(), first.storage.read(PHI)
    for number in range(1, count):
        folder = storage / "initializations" / f"copy-{number}"
        folder.mkdir()
        (folder / PHI).write_bytes(phi)
        (folder / CARD).write_text(json.dumps({**card, "id": f"{card['id']}-{number}"}))


async def _load(port: int, clients: int, requests: int, limit: int) -> list[float]:
    """Every client keeps one connection and asks again as soon as it is answered."""
    left, seconds = requests, list[float]()

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"GET /initializations?limit={limit} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
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


def _resident(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")
