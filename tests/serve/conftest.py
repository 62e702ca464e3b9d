"""Real services on real ports: one with a Ray of its own, one whose cluster never answers, so that jobs wait."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.bench.instance import Instance, make_dataset, make_initialization

NOBODY = "http://127.0.0.1:1"  # an address where no cluster is


@pytest.fixture(scope="session")
def make_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder with a dataset and three initializations."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("world")
        make_dataset(folder / "data")
        for seed, method in enumerate(("shifting", "reptile", "fomaml")):
            make_initialization(folder / "storage", seed, method)
        return folder

    return make


@pytest.fixture(scope="session")
def service(make_world: Callable[[], Path]) -> Iterator[Instance]:
    """A service with nothing set up: it starts Ray itself, and at the end must stop it."""
    instance = Instance(make_world(), "--max-running", "2", "--job-cpus", "0.1")
    instance.start()
    yield instance
    record = instance.storage / "service" / "ray.json"
    head = json.loads(record.read_text())
    assert instance.stop() == 0
    assert not Path(f"/proc/{head['pid']}").exists()
    assert not Path(head["temporary"]).exists()
    assert not record.exists()


@pytest.fixture(scope="session")
def dashboard(service: Instance) -> Iterator[str]:
    """That service's Ray, for other services to join: its address, and its token where they look for it."""
    record = service.storage / "service" / "ray.json"
    wait_for(lambda: httpx.get(f"{service.url}/readyz", trust_env=False).json()["ray"] == "up")
    head = json.loads(record.read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", head["token"])
        yield head["url"]


def wait_for(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def http(service: Instance) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def waiting_service(make_world: Callable[[], Path]) -> Iterator[Instance]:
    with Instance(make_world(), "--address", NOBODY, "--max-queued", "5").running() as instance:
        yield instance


@pytest.fixture(scope="session")
def waiting(waiting_service: Instance) -> Iterator[httpx.Client]:
    """A client of the service whose jobs stay in the queue."""
    with httpx.Client(base_url=waiting_service.url, timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def follow() -> Callable[..., dict[str, Any]]:
    """Wait until a job has a status, by default any that ends it."""

    def until(client: httpx.Client, job_id: str, *statuses: str, seconds: float = 240.0) -> dict[str, Any]:
        wanted = statuses or ("succeeded", "failed", "cancelled")
        deadline = time.monotonic() + seconds
        while (job := client.get(f"/finetune/{job_id}").json())["status"] not in wanted:
            assert time.monotonic() < deadline, f"job is still {job['status']}"
            time.sleep(0.1)
        return job

    return until
