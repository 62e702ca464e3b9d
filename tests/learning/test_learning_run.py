"""The driver of a run: faults are counted between snapshots, and the same death twice ends it."""

from __future__ import annotations

import io
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import build_config
from rayctsl.learning.engine import Chunk, EngineFault, LocalEngine
from rayctsl.learning.metrics import read_metrics
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Hooks, Run, run_local, train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import RunState
from rayctsl.learning.stopping import Interrupted


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(3))


class BowlTask:
    """As little as a task can be."""

    def __init__(self, name: str, centre: float):
        self.name, self.centre = name, centre

    def build_module(self) -> nn.Module:
        return Bowl()

    def head_name(self, module: nn.Module) -> str | None:
        return None

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        return (module.point - self.centre - index / 10).square().sum()


def bowls(**keys: Any) -> Problem:
    tasks = {name: BowlTask(name, centre) for name, centre in (("task-0", 1.0), ("task-1", 2.0))}
    raw = {"inner_steps": 6, "trajectories": 2, "snapshot_every": 3, "data": {"tasks": list(tasks)}}
    return Problem.of(build_config({**raw, **keys}), tasks=tasks)


Faults = dict[int, list[EngineFault]]  # to raise at a step, one after the other
RESTART = -1  # in place of a step: while the group is built again


class FaultyEngine(LocalEngine):
    """A real engine that fails where it is told to."""

    def __init__(self, problem: Problem, faults: Faults):
        super().__init__(problem)
        self.faults = faults

    def start(self, state: RunState | None) -> None:
        if state is not None and self.faults.get(RESTART):
            raise self.faults[RESTART].pop(0)
        super().start(state)

    def run(self, start: int, stop: int, then: int | None = None) -> Chunk:
        for step in range(start, stop):
            if self.faults.get(step):
                raise self.faults[step].pop(0)
        return super().run(start, stop)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    def run(faults: Faults, **topology: int) -> tuple[str, str]:
        problem = bowls(topology=topology)
        log = io.StringIO()
        folder = RunFolder.open(str(tmp_path / "run"), problem.config)
        sha = train_with(FaultyEngine(problem, faults), problem, folder, log=log).card.sha256
        calm = run_local(problem.config, RunFolder.open(str(tmp_path / "calm"), problem.config), problem)
        assert sha == calm.card.sha256
        return sha, log.getvalue()

    return run


def test_faults_with_progress_in_between_never_use_up_the_budget(train):
    log = train({4: [EngineFault("one")], 7: [EngineFault("two")], 10: [EngineFault("three")]}, max_failures=1)[1]
    assert "fault 3: three; going back to the last snapshot" in log
    assert "continuing at inner step 9 of 12, phi sha256 " in log


def test_faults_without_progress_do(train):
    with pytest.raises(EngineFault, match="second"):
        train({4: [EngineFault("first"), EngineFault("second")]}, max_failures=1)


def test_what_the_cluster_takes_away_does_not_count(train):
    train({4: [EngineFault("preempted", counts=False) for _ in range(5)]}, max_failures=0)


def test_the_same_death_twice_names_the_task(train):
    deaths = [EngineFault("died", at=(4, "task-1")) for _ in range(2)]
    with pytest.raises(EngineFault, match="task 'task-1' ended its process twice at inner step 4"):
        train({4: deaths})


def test_a_fault_in_between_does_not_hide_that_a_task_ended_its_process_twice(train):
    deaths = [EngineFault("died", at=(4, "task-1")) for _ in range(2)]
    with pytest.raises(EngineFault, match="task 'task-1' ended its process twice at inner step 4"):
        train({4: [deaths[0], EngineFault("cannot be reached"), deaths[1]]}, max_failures=5)


def test_a_group_that_cannot_be_built_again_at_once_is_no_second_death(train):
    log = train({4: [EngineFault("died", at=(4, "task-1"))], RESTART: [EngineFault("no room yet")]})[1]
    assert "fault 1: died; going back to the last snapshot" in log
    assert "fault 2: no room yet; going back to the last snapshot" in log


def test_deaths_at_different_places_are_survived(train):
    train({4: [EngineFault("died", at=(4, "task-1")), EngineFault("died", at=(3, "task-0"))]})


def test_hooks_see_chunks_and_recoveries(tmp_path: Path):
    problem, seen = bowls(), list[object]()
    hooks = Hooks(
        after_chunk=lambda run: seen.append(run.step),
        before_recovery=lambda run: seen.append("before"),
        after_recovery=lambda run, seconds: seen.append("after"),
    )
    engine = FaultyEngine(problem, {8: [EngineFault("gone")]})
    folder = RunFolder.open(str(tmp_path / "run"), problem.config)
    train_with(engine, problem, folder, hooks=hooks, log=io.StringIO())
    assert seen[0] == 0
    assert seen[-1] == 12
    assert seen[seen.index("before") + 1 : seen.index("before") + 3] == ["after", 6]


def test_plain_lines_say_which_snapshot_is_written(tmp_path: Path):
    problem, log = bowls(), io.StringIO()
    folder = RunFolder.open(str(tmp_path / "run"), problem.config)
    hooks = Hooks(after_chunk=lambda run: run.writer.flush())
    train_with(LocalEngine(problem), problem, folder, hooks=hooks, log=log)
    (last,) = [line for line in log.getvalue().splitlines() if "12 of 12 steps" in line]
    assert last.endswith(", snapshot at step 9")  # the one at 12 comes after this line


def test_every_step_is_in_the_metrics_once_and_as_soon_as_it_is_in_a_snapshot(tmp_path: Path):
    problem, saved = bowls(log_every=1), dict[int, list[int]]()
    folder = RunFolder.open(str(tmp_path / "run"), problem.config)

    def look(run: Run) -> None:
        if run.step in (6, 9):  # where a kill would take nothing
            saved[run.step] = read_metrics(folder.storage)["step"].to_pylist()

    engine = FaultyEngine(problem, {1: [EngineFault("gone")]})  # after the first step, which is taken again
    train_with(engine, problem, folder, hooks=Hooks(after_chunk=look), log=io.StringIO())
    assert saved == {6: list(range(1, 7)), 9: list(range(1, 10))}
    assert read_metrics(folder.storage)["step"].to_pylist() == list(range(1, 13))


def test_a_run_leaves_a_card_of_where_it_was_computed_and_a_picture(tmp_path: Path):
    problem = bowls()
    card = run_local(problem.config, RunFolder.open(str(tmp_path), problem.config), problem).card
    assert card.versions["processor"] == LocalEngine(problem).computed_on
    assert (tmp_path / "plots/loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_has_only_to_save_its_initialization_knows_what_it_has_spent(tmp_path: Path):
    problem, base = bowls(), str(tmp_path / "run")
    run_local(problem.config, RunFolder.open(base, problem.config), problem)
    shutil.rmtree(tmp_path / "run/initialization")  # as if it was killed after its last snapshot
    card = run_local(problem.config, RunFolder.open(base, resume="must"), problem).card
    assert card.spent == {"inner": 2 * 12, "held_out": 0, "hessian": 0}


def test_who_diverged_after_a_snapshot_takes_part_again_from_it_and_who_was_dropped_before_does_not():
    group = LocalEngine(bowls()).group
    states = group.states()
    states["task-1"]["dropped"] = torch.tensor([True])
    group.alive[:] = torch.tensor([False, True])
    group.load_states(states)
    assert group.alive.tolist() == [True, False]
    assert [learner.task.name for learner in group.active] == ["task-0"]


def test_a_resumed_run_may_have_another_topology_but_no_other_science(tmp_path: Path):
    base = str(tmp_path / "run")
    RunFolder.open(base, bowls(topology={"workers": 2}).config)
    changed = RunFolder.open(base, resume="must", changes={"topology.workers": 1, "timeout_seconds": 7}).config
    assert (changed.topology.workers, changed.topology.timeout_seconds) == (1, 7)
    assert RunFolder.open(base, resume="must").config.topology.workers == 2
    with pytest.raises(ValueError, match="only its topology and its data root may change"):
        RunFolder.open(base, resume="must", changes={"method.beta": 3})


def test_the_threads_that_are_told_are_those_that_compute():
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # of this process; the config's one is what the run computes with
    try:
        engine = LocalEngine(bowls())
        assert engine.computed_on.startswith("1 thread of ")
        assert "computed on 1 thread of " in engine.describe()
    finally:
        torch.set_num_threads(before)


def test_a_run_that_was_stopped_says_by_what_and_how_it_goes_on():
    stopped = {signum: Interrupted(signum, "runs/a") for signum in (signal.SIGINT, signal.SIGTERM)}
    assert [each.exit_code for each in stopped.values()] == [130, 143]
    assert str(stopped[signal.SIGTERM]) == "stopped; continue with: python -m rayctsl.train --resume runs/a"
    own = Interrupted(signal.SIGTERM, "runs/a", "mine.models.Net")
    assert str(own) == "stopped; continue with: rayctsl.train(resume='runs/a', model=Net)"
