"""Real services on real ports: one with the session's Ray cluster, one whose cluster never answers, so jobs wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.bench.instance import Instance, make_dataset, make_initialization
from serve.ray_head import RayHead
from serve.ray_jobs import RayJobs

NOBODY = "http://127.0.0.1:1"  # an address where no cluster is


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A head started the way the service starts its own, with its token where services that join it look."""
    ray = RayJobs(None)
    head = RayHead(tmp_path_factory.mktemp("head"), ray)
    head.ensure()
    assert ray.url
    assert ray.token
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", ray.token)
        yield ray.url
    head.stop()


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
def service(make_world: Callable[[], Path], dashboard: str) -> Iterator[Instance]:
    with Instance(make_world(), "--address", dashboard, "--max-running", "2").running() as instance:
        yield instance


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

    def until(client: httpx.Client, job_id: str, *statuses: str, seconds: float = 90.0) -> dict[str, Any]:
        wanted = statuses or ("succeeded", "failed", "cancelled")
        deadline = time.monotonic() + seconds
        while (job := client.get(f"/finetune/{job_id}").json())["status"] not in wanted:
            assert time.monotonic() < deadline, f"job is still {job['status']}"
            time.sleep(0.1)
        return job

    return until
