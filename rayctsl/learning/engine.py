"""What computes the steps of a problem: the `Engine` protocol, and `LocalEngine`, which has all tasks in this process.

`cluster/engine.py` has the one on Ray. `learning/run.py` drives either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

from rayctsl.device import choose_device, describe_device
from rayctsl.futures import finished
from rayctsl.learning.group import TaskGroup
from rayctsl.learning.loop import run_steps
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.learning.problem import Problem
from rayctsl.learning.processor import num_threads
from rayctsl.learning.snapshot import RunState
from rayctsl.methods import build_method
from rayctsl.progress import say

Result = TypeVar("Result")


@dataclass
class Chunk:
    """What an engine reports of some steps: losses [steps, tasks] and deltas [steps], and how the time was spent."""

    losses: np.ndarray
    delta_norms: np.ndarray
    disagreements: np.ndarray  # [steps]
    inner_steps: np.ndarray  # [steps], taken so far over all tasks
    counts: np.ndarray
    seconds: float
    facts: dict[str, float] = field(default_factory=dict)  # utilisation, stall_share, bytes_per_step


class Engine(Protocol):
    """Computes the steps of one problem.

    `run` takes inner steps start .. stop - 1. Told where the chunk after them would end, `then`, an engine may begin it
    before it returns: `under_way` is where it ends, it has to be asked for next, and until then nothing is captured.
    `capture` is given the address of the snapshot's folder `into` which tasks' states may be written straight away.
    """

    say: Callable[[str], None]  # tells the user what takes a while

    @property
    def computed_on(self) -> str: ...  # the kind of processor and the number of threads, which decide the bits
    @property
    def under_way(self) -> int | None: ...
    def start(self, state: RunState | None) -> None: ...
    def run(self, start: int, stop: int, then: int | None = None) -> Chunk: ...
    def capture(self, step: int, into: str | None = None) -> Future[RunState]: ...
    def name_phi(self, phi: Tensor) -> dict[str, Tensor]: ...
    def on_learner(self, function: Callable[[str], Result]) -> Result: ...
    def describe(self) -> str: ...
    def close(self) -> None: ...


class LocalEngine:
    """All tasks in this process, on its accelerator if it has one."""

    under_way = None

    def __init__(self, problem: Problem, device: str | None = None):
        self.problem, config = problem, problem.config
        self.say: Callable[[str], None] = say
        self.method = build_method(config.method, config.seed)
        self.device = device or choose_device()
        tasks = [problem.build_task(name, self.device) for name in problem.task_names]
        self.group = TaskGroup(tasks, config, self.method)
        self.first = next(iter(self.group.learners.values()))
        self.meta = OuterLearner(config, self.method, self.first.theta)

    def start(self, state: RunState | None) -> None:
        if state is not None:
            self.meta.load_state(state.meta)
            self.group.load_states(state.tasks)

    def run(self, start: int, stop: int, then: int | None = None) -> Chunk:
        started = time.perf_counter()
        with num_threads(self.problem.config.topology.threads):
            records = run_steps(start, stop, self.problem.config.inner_steps, self.method, self.group, self.meta)
        return Chunk(
            losses=np.stack([record.losses for record in records]),
            delta_norms=np.array([record.delta_norm for record in records]),
            disagreements=np.array([record.disagreement for record in records]),
            inner_steps=np.array([record.inner_steps for record in records]),
            counts=self.group.counts(),
            seconds=time.perf_counter() - started,
        )

    def capture(self, step: int, into: str | None = None) -> Future[RunState]:
        meta = {name: value.cpu().clone() for name, value in self.meta.state().items()}
        return finished(RunState(step, meta, self.group.states(), {"computed_on": self.computed_on}))

    def name_phi(self, phi: Tensor) -> dict[str, Tensor]:
        return self.first.flat.name_backbone(phi.cpu())

    @property
    def computed_on(self) -> str:
        with num_threads(self.problem.config.topology.threads):
            return describe_device(self.device)

    def on_learner(self, function: Callable[[str], Result]) -> Result:
        """Call a function with the learners' device."""
        return function(self.device)

    def describe(self) -> str:
        with num_threads(self.problem.config.topology.threads):
            return "; ".join([f"{len(self.group.learners)} tasks in this process", *self.group.notices])

    def close(self) -> None:
        pass


class EngineFault(RuntimeError):
    """The engine lost a part of itself; it can start again from a snapshot.

    `counts` is False for what the cluster takes away on purpose. `at` is the inner step and the task at which a process
    died, where that is known.
    """

    exit_code = 1

    def __init__(self, text: str, *, counts: bool = True, at: tuple[int, str] | None = None):
        super().__init__(text)
        self.counts, self.at = counts, at
