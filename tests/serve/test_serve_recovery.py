"""Jobs that are never lost: the service killed with -9, workers killed, the cluster gone, Ray of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.bench.instance import Instance
from serve.bench.jobs import prove
from tests.processes import is_alive
from tests.serve.conftest import wait_for

BODY = {"dataset": "stripes", "steps": 5}
pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.long
def test_no_job_is_lost_or_doubled_when_the_service_is_killed(dashboard: str, tmp_path: Path) -> None:
    figures = prove(12, 4, 2, max_queued=6, address=dashboard, seconds=400, folder=tmp_path)
    assert (figures["jobs"], figures["succeeded"]) == (12, 12)
    assert figures["faults"]


def test_killed_worker_and_service_are_replaced_and_the_job_goes_on_from_its_checkpoint(
    service: Instance, http: httpx.Client, follow: Callable[..., dict[str, Any]]
) -> None:
    record = service.storage / "service" / "ray.json"
    wait_for(lambda: http.get("/readyz").json()["ray"] == "up")
    head = json.loads(record.read_text())
    assert record.stat().st_mode & 0o777 == 0o600
    assert httpx.get(f"{head['url']}/api/jobs/", trust_env=False).status_code == 401  # Ray wants its token
    body = {"dataset": "stripes", "steps": 250, "batch_size": 16, "evaluate_every": 25}
    undisturbed = follow(http, http.post("/finetune", json=body).json()["id"])
    job = http.post("/finetune", json=body).json()
    folder = service.storage / "jobs" / job["id"]
    deadline = time.monotonic() + 60
    while not (folder / "attempt-1" / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    alive = max((service.storage / "workers").glob("*/alive.json"), key=lambda path: path.stat().st_mtime)
    os.kill(json.loads(alive.read_text())["pid"], signal.SIGKILL)
    service.kill()  # and the service with it
    assert is_alive(head["pid"])
    service.start()
    ended = follow(http, job["id"])
    assert ended["status"] == "succeeded"
    assert ended["attempt"] == 2
    assert ended["metrics"] == undisturbed["metrics"]
    assert ended["result"]["weights"]["sha256"] == undisturbed["result"]["weights"]["sha256"]
    events = [json.loads(line) for line in (folder / "attempt-2" / "events.jsonl").read_text().splitlines()]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    (resumed,) = [event for event in events if event["type"] == "resumed"]
    assert resumed["step"] > 0
    assert not (folder / "attempt-1" / "result.json").exists()
    assert json.loads(record.read_text()) == head, "the service has joined the Ray that it left behind"
    assert http.get("/readyz").json() == {"status": "ok", "ray": "up", "dispatcher": "running", "reasons": []}


@pytest.mark.long
def test_jobs_wait_while_ray_is_down_and_go_on_with_the_next(
    service: Instance, http: httpx.Client, follow: Callable[..., dict[str, Any]]
) -> None:
    record = service.storage / "service" / "ray.json"
    first = json.loads(record.read_text())
    long = {**BODY, "steps": 20000, "evaluate_every": 2000}  # longer than Ray takes to die, on a busy machine too
    running = http.post("/finetune", json=long).json()
    follow(http, running["id"], "running")
    workers = [json.loads(path.read_text())["pid"] for path in (service.storage / "workers").glob("*/alive.json")]
    os.killpg(first["pid"], signal.SIGKILL)  # the head and what is in its process group
    waiting = http.post("/finetune", json=BODY)
    assert waiting.status_code == 202
    assert http.get("/initializations").status_code == 200
    ended = follow(http, running["id"])  # there is one worker, and the other waits for it
    assert ended["status"] == "succeeded"
    assert follow(http, waiting.json()["id"])["status"] == "succeeded"
    assert json.loads(record.read_text())["pid"] != first["pid"]
    assert ended["attempt"] == 2
    assert workers
    assert not any(map(is_alive, workers))  # no worker outlives its cluster
