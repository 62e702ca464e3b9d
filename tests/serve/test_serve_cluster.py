"""The Ray that the service starts: who can reach it, how soon its death is known; and image bombs at a real model."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image

from serve.bench.instance import Instance

pytestmark = pytest.mark.ray
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def processes_of(session: int) -> set[int]:
    """The processes that descend from the head, wherever they went."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, news = {session}, {session}
    while news:
        news = {pid for pid, parent in parents.items() if parent in news} - found
        found |= news
    return found


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """Address and port of every TCP socket that these processes listen at."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir() if Path(f"/proc/{pid}/fd").exists() else ():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


@pytest.fixture(scope="module")
def finished(http: httpx.Client, follow: Callable[..., dict]) -> dict:
    job = http.post("/finetune", json={"dataset": "stripes", "steps": 5, "batch_size": 8}).json()
    return follow(http, job["id"])


def test_all_sockets_of_the_cluster_are_on_loopback(service: Instance, finished: dict) -> None:
    """Head, raylet, agents, and the worker that has just run a job."""
    head = json.loads((service.storage / "service" / "ray.json").read_text())
    sockets = listening(processes_of(head["pid"]))
    assert len(sockets) > 5
    assert {(address, port) for address, port in sockets if address not in LOOPBACK} == set()


def test_six_long_thin_images_hurt_nobody(service: Instance, http: httpx.Client, finished: dict) -> None:
    sink = io.BytesIO()
    Image.new("1", (1, 24_999_999)).save(sink, "PNG")
    image, url = sink.getvalue(), f"{service.url}/finetune/{finished['id']}/predict"
    assert service.process is not None
    before = _memory(service.process.pid)
    probes = []

    def send(_: int) -> int:
        return httpx.post(
            url, content=image, headers={"content-type": "image/png"}, timeout=120, trust_env=False
        ).status_code

    with ThreadPoolExecutor(7) as pool:
        answers = pool.map(send, range(6))
        for _ in range(20):
            started = time.perf_counter()
            assert http.get("/livez").status_code == 200
            probes.append(time.perf_counter() - started)
        codes = set(answers)
    assert codes <= {413, 503}
    assert 413 in codes
    assert _memory(service.process.pid) - before < 30, "the image lives in the predictor, not here"
    assert sorted(probes)[10] < 0.5  # who decodes such an image in the service's own process keeps all others waiting


def _memory(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.long  # with a played cluster in jobs/test_serve_jobs_pool.py: test_the_clusters_death_is_seen_while_…
def test_the_clusters_death_is_known_within_three_seconds(make_world: Callable[[], Path]) -> None:
    with Instance(make_world(), "--max-running", "1", "--job-cpus", "0.1").running() as service:
        ready = f"{service.url}/readyz"
        deadline = time.monotonic() + 180
        while httpx.get(ready, trust_env=False, verify=False).json()["ray"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        head = json.loads((service.storage / "service" / "ray.json").read_text())
        os.killpg(head["pid"], signal.SIGKILL)
        killed = time.monotonic()
        while (health := httpx.get(ready, trust_env=False, verify=False).json())["ray"] == "up":
            assert time.monotonic() - killed < 30
            time.sleep(0.05)
        assert time.monotonic() - killed < 3.0
        assert health["status"] == "degraded"
        assert health["reasons"]
