"""A service's dispatcher and pool on a real store, with Ray's job server and the workers played in memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import Assignment, JobSpec, Source
from rayctsl.jobs.files import read_document
from rayctsl.storage import Storage
from serve.house import House
from serve.jobs import pool as pool_module
from serve.jobs.dispatcher import Dispatcher
from serve.jobs.leader import Leadership
from serve.jobs.pool import WorkerPool
from serve.jobs.rows import JobRow, NewJob
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database
from serve.metrics import ServiceMetrics
from serve.ray_jobs import RayJobs
from serve.settings import Settings

RESULT = {
    "accuracy": 1.0,
    "loss": 0.5,
    "train_size": 3,
    "test_size": 3,
    "num_classes": 3,
    "dataset_checksum": "",
    "weights": {"sha256": "0" * 64, "size": 1},
    "versions": {},
}


class JobServer:
    """Ray's job server, as far as it is asked here: names and states."""

    def __init__(self) -> None:
        self.up = True
        self.states: dict[str, str] = {}
        self.entrypoints: dict[str, str] = {}
        self.shares: dict[str, tuple[float, float]] = {}  # CPUs and GPUs
        self.accepts = True

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self.up:
            raise httpx.ConnectError("nobody listens")
        match [request.method, *request.url.path.strip("/").split("/")[1:]]:
            case ["GET", "version"]:
                return httpx.Response(200, json={"ray_version": "2"})
            case ["POST", "jobs"]:
                return self._submit(json.loads(request.content))
            case ["GET", "jobs", name] if name in self.states:
                return httpx.Response(200, json={"status": self.states[name], "message": "as told"})
            case ["POST", "jobs", name, "stop"]:
                self.states[name] = "STOPPED"
                return httpx.Response(200, json={"stopped": True})
        return httpx.Response(404)

    def _submit(self, body: dict[str, Any]) -> httpx.Response:
        name = body["submission_id"]
        if not self.accepts or name in self.states:
            return httpx.Response(500, text="Traceback")
        self.states[name], self.entrypoints[name] = "RUNNING", body["entrypoint"]
        self.shares[name] = body["entrypoint_num_cpus"], body.get("entrypoint_num_gpus", 0.0)
        return httpx.Response(200, json={"submission_id": name})


class Stage:
    """One service, its workers played by the test, and a clock that stands still unless told."""

    def __init__(self, folder: Path, server: JobServer, **settings: Any):
        self.server, self.now, self.counts = server, 1000.0, Counter[str]()
        self.settings = Settings(storage=str(folder), address="http://127.0.0.1:1", **settings)
        self.storage = Storage(folder)
        self.engine = open_database(self.settings.database_url)
        self.store = JobStore(self.engine)
        self.store.add_slots(self.settings.max_running)
        self.begin()

    def begin(self) -> None:
        """A new process of the service: it knows what is in the store and the files."""
        ray = RayJobs("http://127.0.0.1:1", transport=httpx.MockTransport(self.server))
        leader, house = Leadership(self.engine), House()
        self.pool = WorkerPool(self.settings, self.store, ray, self.storage, house)
        self.dispatcher = Dispatcher(
            self.settings, self.store, self.pool, self.storage, ServiceMetrics(), leader, house
        )

    def turn(self, times: int = 1) -> None:
        async def turns() -> None:
            for _ in range(times):
                await self.dispatcher.turn()
                await asyncio.gather(*self.pool._submissions)

        asyncio.run(turns())

    def add(self, **config: Any) -> str:
        spec = JobSpec(
            dataset="x",
            data_root="/data",
            initialization=Source(id="y", sha256="", path="/y"),
            seed=0,
            compare_with_scratch=False,
            config=FinetuneConfig(**{"steps": 10, **config}),
        )
        return self.store.create(NewJob({"dataset": "x"}, spec, "a"), max_queued=99)[0].id

    def job(self, job_id: str) -> JobRow:
        found = self.store.get(job_id)
        assert found is not None
        return found

    @property
    def workers(self) -> list[str]:
        return [slot.worker for slot in self.store.slots() if slot.worker]

    def beat(self, *names: str) -> None:
        """These workers (all, if none is named) show that they live."""
        for name in names or self.workers:
            self.counts[name] += 1
            self.storage.write(
                f"workers/{name}/alive.json", json.dumps({"count": self.counts[name], "pid": 1}).encode()
            )

    def told(self, worker: str) -> tuple[str | None, int]:
        """The job and attempt that a worker was last told of; no job: to leave."""
        assignment = read_document(self.storage, f"workers/{worker}/job.json", Assignment)
        assert assignment is not None
        return assignment.job, assignment.attempt

    def progress(self, job_id: str, step: int = 0) -> None:
        folder = f"jobs/{job_id}/attempt-{self.job(job_id).attempt}"
        self.storage.write(f"{folder}/progress.json", json.dumps({"step": step, "at": 0}).encode())

    def finish(self, job_id: str, **outcome: Any) -> None:
        folder = f"jobs/{job_id}/attempt-{self.job(job_id).attempt}"
        whole = {"status": "succeeded", "attempt": self.job(job_id).attempt, "finished_at": 1.0, **outcome}
        if whole["status"] == "succeeded":
            whole["result"] = {**RESULT, **outcome.get("result", {})}
        self.storage.write(f"{folder}/result.json", json.dumps(whole).encode())

    def running(self, **config: Any) -> str:
        """A job that a worker has begun."""
        job_id = self.add(**config)
        self.turn()
        self.beat()
        self.turn()
        assert self.job(job_id).status == "starting"
        self.progress(job_id)
        self.turn()
        assert self.job(job_id).status == "running"
        return job_id

    def lose(self, worker: str) -> None:
        """A worker dies, and so long passes that its silence is seen."""
        self.server.states[worker] = "FAILED"
        self.now += pool_module.FRESH_SECONDS + 1


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stage]]:
    """Builds the one stage of a test: stage(max_running=1)."""
    made: list[Stage] = []

    def build(**settings: Any) -> Stage:
        made.append(Stage(tmp_path, JobServer(), **settings))
        monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: made[0].now))
        return made[0]

    yield build
    for each in made:
        each.store.close()
