"""How fast a download is, beside the same file from a bare socket with `sendfile`, in one run, turn by turn."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

from rayctsl.card import CARD, PHI
from serve.bench.instance import Instance, make_initialization

BLOCK = 1024 * 1024


def measure(megabytes: int, rounds: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        folder = Path(name)
        identifier, path = _large_initialization(folder / "storage", megabytes)
        bare = multiprocessing.get_context("fork").Process(target=_sendfile_server, args=(listener, path), daemon=True)
        bare.start()
        try:
            with Instance(folder, "--address", "http://127.0.0.1:1").running() as service:
                target = f"/initializations/{identifier}/weights"
                ports = {"service": service.port, "sendfile": listener.getsockname()[1]}
                for port in ports.values():
                    _download(port, target)  # warm the page cache and the checksum
                seconds: dict[str, list[float]] = {"service": [], "sendfile": []}
                for _ in range(rounds):
                    for who, port in ports.items():
                        seconds[who].append(_download(port, target))
        finally:
            bare.terminate()
            bare.join()
    # The fastest round tells what the program can do; the others tell what else the machine was busy with.
    best = {who: megabytes / min(values) for who, values in seconds.items()}
    median = {who: megabytes / statistics.median(values) for who, values in seconds.items()}
    return {
        "megabytes": megabytes,
        "rounds": rounds,
        "service_mb_per_s": round(best["service"], 1),
        "sendfile_mb_per_s": round(best["sendfile"], 1),
        "ratio": round(best["service"] / best["sendfile"], 3),
        "median_ratio": round(median["service"] / median["sendfile"], 3),
    }


def _large_initialization(storage: Path, megabytes: int) -> tuple[str, Path]:
    place = make_initialization(storage).storage
    data = os.urandom(BLOCK) * megabytes
    card = json.loads(place.read(CARD))
    card.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    place.write(PHI, data)
    place.write(CARD, json.dumps(card).encode())
    return card["id"], Path(place.root) / PHI


def _sendfile_server(listener: socket.socket, path: Path) -> None:
    with path.open("rb") as file:
        size = path.stat().st_size
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode())
                sent = 0
                while sent < size:
                    sent += os.sendfile(connection.fileno(), file.fileno(), sent, size - sent)


def _download(port: int, target: str) -> float:
    view = memoryview(bytearray(BLOCK))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        connection.sendall(f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        head, _, rest = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        received = len(rest)
        while received < length:
            count = connection.recv_into(view)
            if not count:
                raise RuntimeError(f"{received} of {length} bytes came")
            received += count
        return time.perf_counter() - started
