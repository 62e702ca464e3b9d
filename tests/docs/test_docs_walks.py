"""The walks of docs/ARCHITECTURE.md are those that the program takes: its files, in the order of their first call."""

from __future__ import annotations

import io
import re
import shlex
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from tests.serve.jobs.conftest import JobServer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"


class Trace:
    """Files of the program by first call, in this thread and in those that start meanwhile."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def __enter__(self) -> Trace:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *unused: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if event == "call" and name.startswith(("rayctsl/", "serve/")):
            self.files.setdefault(name)


def begin_trace(worker: Any) -> None:
    """Inside an actor."""
    worker.trace = Trace().__enter__()


def end_trace(worker: Any) -> list[str]:
    worker.trace.__exit__()
    return list(worker.trace.files)


def walk(title: str) -> list[str]:
    """The files of a walk, as the page has them."""
    (block,) = re.findall(rf"^## {title}\n.*?^```\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    names = [line.split()[0] for line in block.splitlines() if line and not line.startswith(" ")]
    return [name if name.startswith("serve/") else f"rayctsl/{name.removeprefix('rayctsl/')}" for name in names]


def in_order(wanted: list[str], *traces: list[str]) -> list[str]:
    """What of a walk the traces have, in the order in which they have it first."""
    seen = dict.fromkeys(name for trace in traces for name in trace)
    return [name for name in seen if name in wanted]


@pytest.mark.ray
def test_a_training_step_takes_the_walk(kept_actors: None, data_root: Path, tmp_path: Path) -> None:
    from rayctsl.cluster.engine import RayEngine
    from rayctsl.cluster.testbed import answers, call_inside
    from rayctsl.config import load_config
    from rayctsl.learning.problem import Problem
    from rayctsl.learning.run import Run
    from rayctsl.learning.run_folder import RunFolder

    keys = {"data.tasks": ["latin", "shapes"], "topology.workers": 2, "tensorboard": False}
    config = load_config("configs/demo.yaml", {**keys, "inner_steps": 3, "trajectories": 1})
    problem = Problem.of(config)
    engine = RayEngine(problem, measure_costs=False)
    with Run(engine, problem, RunFolder.open(str(tmp_path / "run"), config), log=io.StringIO()) as run:
        run.begin()
        run.advance()
        actors = [*engine.learners, engine.meta]
        answers([call_inside(actor, begin_trace) for actor in actors])
        with Trace() as driver:
            run.advance()
        learner, _, meta = answers([call_inside(actor, end_trace) for actor in actors])
    wanted, before = walk("The walk of a training step"), list(driver.files)
    before = before[: before.index("rayctsl/cluster/engine.py") + 1]
    assert in_order(wanted, before, learner, meta) == wanted


def test_a_finetune_job_takes_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    import serve.service
    from rayctsl.jobs.contracts import Assignment
    from rayctsl.jobs.files import ASSIGNMENT, worker_folder
    from rayctsl.jobs.worker import run_worker
    from rayctsl.storage import Storage
    from serve.app import create_app
    from serve.bench.instance import DATASET, make_dataset, make_initialization
    from serve.ray_jobs import RayJobs
    from serve.settings import Settings

    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    server, storage = JobServer(), Storage(tmp_path / "storage")
    cluster = RayJobs("http://127.0.0.1:1", transport=httpx.MockTransport(server))
    monkeypatch.setattr(serve.service, "RayJobs", lambda *unused: cluster)
    settings = Settings(storage=str(storage), data_root=str(tmp_path / "data"), address="http://127.0.0.1:1")
    with Trace() as trace, TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        job = client.post("/finetune", json={"dataset": DATASET, "steps": 2, "batch_size": 8}).json()
        while not server.entrypoints:  # the dispatcher asks Ray for a worker
            time.sleep(0.02)
        (entrypoint,) = server.entrypoints.values()
        name = shlex.split(entrypoint)[shlex.split(entrypoint).index("--worker") + 1]
        worker = threading.Thread(target=run_worker, args=(storage, name), kwargs={"idle_seconds": 60.0})
        worker.start()
        told = client.get(f"/finetune/{job['id']}/events").text  # to the job's end
        storage.write(f"{worker_folder(name)}/{ASSIGNMENT}", Assignment(job=None, attempt=0).to_bytes())
        worker.join()
    assert '"succeeded"' in told
    wanted = walk("The walk of a fine-tune job")
    assert [name for name in wanted if name not in trace.files] == []
