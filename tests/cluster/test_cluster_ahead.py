"""The driver never lets learners wait, and nobody waits for ever: chunks begun ahead, and a deadline for progress."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rayctsl.cluster import calls
from rayctsl.cluster.engine import RayEngine
from rayctsl.learning.engine import EngineFault, LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Hooks, Run, train_with

pytestmark = pytest.mark.ray


class Marking:
    """A task that leaves a file at every batch, and stands still at one of them while a file is there."""

    def __init__(self, task: Any, folder: Path, stands_at: int = -1):
        self.name, self.task, self.folder, self.stands_at = task.name, task, folder, stands_at

    def build_module(self) -> nn.Module:
        return self.task.build_module()

    def head_name(self, module: nn.Module) -> str | None:
        return self.task.head_name(module)

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        while index == self.stands_at and (self.folder / "stand").exists():
            time.sleep(0.01)
        (self.folder / f"{self.name}-{index}").touch()
        return self.task.loss(module, index, held_out=held_out)


def marking(problem: Problem, folder: Path, stands_at: int = -1) -> Problem:
    tasks = {name: Marking(problem.build_task(name, "cpu"), folder, stands_at) for name in problem.task_names}
    return Problem.of(problem.config, tasks=tasks)


@pytest.mark.parametrize("workers", [2, 1])  # with one learner the meta-learner follows
def test_the_next_chunk_is_begun_before_the_last_is_collected(
    kept_actors, tiny_problem, tmp_path, monkeypatch, workers
):
    problem = marking(tiny_problem(2, topology={"workers": workers}), tmp_path)
    here = LocalEngine(tiny_problem(2), "cpu")
    here.run(0, 6)
    engine = RayEngine(problem, measure_costs=False)
    collect = engine._collect

    def late(running: Any, patience: float | None = None) -> list[Any]:
        """Collects the first chunk only when the second has been computed."""
        deadline = time.monotonic() + 60
        while patience and not (tmp_path / "task-1-3").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return collect(running, patience)

    try:
        engine.start(None)
        monkeypatch.setattr(engine, "_collect", late)
        engine.run(0, 2, then=4)
        assert (tmp_path / "task-1-3").exists(), "nobody had begun the second chunk"
        assert engine.under_way == 4
        with pytest.raises(AssertionError, match="past this step"):
            engine.capture(2)
        engine.run(2, 4, then=6)
        engine.run(4, 6)
        assert engine.under_way is None
        state = engine.capture(6).result()
        assert torch.equal(state.meta["phi"], here.meta.phi)
        for name, expected in here.capture(6).result().tasks.items():
            assert all(torch.equal(state.tasks[name][key], value) for key, value in expected.items())
    finally:
        engine.close()


def test_a_run_that_is_begun_ahead_keeps_its_bits_snapshots_and_end(kept_actors, tiny_problem, new_folder, monkeypatch):
    """Chunks of one step, so that every one but a snapshot's is begun ahead."""
    monkeypatch.setattr("rayctsl.learning.run.CHUNK_SECONDS", 0.0)
    keys = {"inner_steps": 6, "snapshot_every": 4, "topology": {"workers": 2}}
    problem = tiny_problem(2, **keys)
    here = LocalEngine(problem, "cpu")
    chunk = here.run(0, 12)
    ahead: list[tuple[int, int | None]] = []
    folder = new_folder(problem)
    made = train_with(
        RayEngine(problem, measure_costs=False),
        problem,
        folder,
        hooks=Hooks(after_chunk=lambda run: ahead.append((run.step, run.engine.under_way))),
        log=io.StringIO(),
    )
    assert all(torch.equal(made.phi()[name], value) for name, value in here.name_phi(here.meta.phi).items())
    assert made.card.spent["inner"] == chunk.counts[0]
    # Nothing is known of the first step's length, and after steps 4, 8 and 12 a snapshot is due.
    assert [step for step, end in ahead if end is None] == [0, 1, 4, 8, 12]
    state = folder.restore()
    assert state is not None
    assert state.step == 12


def test_a_stopped_run_takes_what_is_under_way(kept_actors, tiny_problem, new_folder, monkeypatch):
    monkeypatch.setattr("rayctsl.learning.run.CHUNK_SECONDS", 0.0)
    problem = tiny_problem(2, inner_steps=20, snapshot_every=20, topology={"workers": 2})
    with Run(RayEngine(problem, measure_costs=False), problem, new_folder(problem), io.StringIO()) as run:
        for _ in run.chunks():
            if run.engine.under_way is not None:
                break
        stood = run.step
        run.drain()
        assert (run.step, run.engine.under_way) == (stood + 1, None)
        here = LocalEngine(problem, "cpu")
        here.run(0, run.step)
        assert torch.equal(run.engine.capture(run.step).result().meta["phi"], here.meta.phi)


def test_learners_that_answer_and_do_not_get_on_are_a_fault(kept_actors, tiny_problem, tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "BEAT_SECONDS", 0.2)
    (tmp_path / "stand").touch()
    problem = marking(tiny_problem(1, topology={"workers": 1, "timeout_seconds": 2.0}), tmp_path, stands_at=2)
    engine = RayEngine(problem)
    try:
        engine.start(None)
        first = engine.capture(0).result()
        victim = engine.learners[0]
        with pytest.raises(EngineFault, match=r"the learners have made no progress for \d+ s"):
            engine.run(0, 4)
        (tmp_path / "stand").unlink()
        engine.start(first)
        assert engine.learners[0] is not victim, "it did not leave when it was told to"
        engine.run(0, 4)
    finally:
        engine.close()
