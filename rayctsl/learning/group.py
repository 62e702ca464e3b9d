"""The tasks that one process hosts: they step together and speak with one summed vector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.device import Stopwatch, describe_device
from rayctsl.learning.exact_sum import Grid
from rayctsl.learning.memory import room_for
from rayctsl.learning.processor import keep_freed_memory, set_arithmetic, why_not_bf16
from rayctsl.learning.task_learner import COUNTED, InnerLearner
from rayctsl.learning.tasks import Task
from rayctsl.methods import Method, Step

COMPUTED_ON = "computed on "
STOP = -(2**20)  # added to the number of tasks by one that diverged: no meta-update follows, in any process


class NonFiniteLoss(ValueError):
    """A task's loss became NaN or infinite, and the policy is to stop."""

    exit_code = 1


class TaskGroup:
    """Some tasks' learners, in the order of the config.

    `alive` [tasks] is False from the step on at which a task's loss or contribution is not finite. It stays on the
    device, where it masks what the task contributes; `StepLog` reads it when a chunk of steps has ended.
    """

    def __init__(self, tasks: list[Task], config: Config, method: Method):
        self.config, self.method, self.grid = config, method, Grid.of(config, method)
        keep_freed_memory()
        set_arithmetic(config.precision, config.deterministic)
        self.learners: dict[str, InnerLearner] = {}
        for task in tasks:
            with room_for(
                f"task {task.name!r}", config.data.batch_size, getattr(task, "device", "cpu"), len(tasks) - 1
            ):
                self.learners[task.name] = InnerLearner(task, config)
        self.names = tuple(self.learners)
        self.dropped: set[str] = set()
        devices = [learner.theta.device for learner in self.learners.values()]
        self.device = devices[0] if devices else torch.device("cpu")
        self.alive = torch.ones(len(tasks), dtype=torch.bool, device=self.device)
        self._stopwatch = Stopwatch(self.device)

    @property
    def notices(self) -> list[str]:
        """What the user should know about how this group computes."""
        if not self.learners:
            return []
        reason = why_not_bf16(self.device.type) if self.config.precision == "bf16" else None
        where = f"{COMPUTED_ON}{describe_device(self.device)}"
        return [where, f"precision bf16 is not used, but fp32: {reason}"] if reason else [where]

    @property
    def active(self) -> list[InnerLearner]:
        return [learner for name, learner in self.learners.items() if name not in self.dropped]

    def begin_trajectory(self, phi: Tensor) -> None:
        for learner in self.active:
            learner.begin_trajectory(phi)

    def inner_step(self, phi: Tensor, step: Step) -> Tensor:
        """One inner step of every task; returns the losses [tasks], NaN for dropped ones."""
        losses = phi.new_full((len(self.learners),), torch.nan)
        with self._stopwatch.running():
            for learner in self.active:
                with self._room(learner):
                    losses[self.names.index(learner.task.name)] = self.method.inner_step(learner, phi, step)
        self.alive &= losses.isfinite()
        return losses

    def contribution(self, phi: Tensor, step: Step) -> Tensor:
        """The sum over this group's tasks in units of the grid, with the number of tasks as its last entry."""
        total = self.grid.no_tasks(phi)
        for learner in self.active:
            with self._room(learner):
                pull = self.method.contribution(learner, phi, step)
            # A step from a finite loss may still overflow: catch it before it reaches phi and everyone else.
            alive = self.alive[self.names.index(learner.task.name)]
            alive.copy_(self.grid.add(total, pull, alive))
            if self.config.on_non_finite == "stop":
                total[-1].add_(~alive * STOP)
        return total

    def shift(self, phi: Tensor, delta: Tensor, step: Step) -> None:
        for learner in self.active:
            self.method.shift(learner, phi, delta, step)

    def drop(self, names: Iterable[str], counts: np.ndarray) -> None:
        """Leave tasks out from now on; `counts` [tasks, kinds] are the gradients up to where each of them diverged."""
        for name in names:
            self.dropped.add(name)
            self.learners[name].counts.copy_(torch.from_numpy(counts[self.names.index(name)]))

    def diverged(self, name: str, step: Step, value: str) -> NonFiniteLoss:
        where = f"inner step {step.k} of trajectory {step.m + 1}"
        return NonFiniteLoss(
            f"task {name!r} diverged (a {value} at {where}); lower beta or alpha, or set on_non_finite=drop"
        )

    def _room(self, learner: InnerLearner) -> AbstractContextManager[None]:
        batch, others = self.config.data.batch_size, len(self.learners) - 1
        return room_for(f"task {learner.task.name!r}", batch, self.device, others)

    def take_seconds(self) -> float:
        """Computing seconds since the last call; only when a chunk has ended."""
        return self._stopwatch.take()

    def counts_by_task(self) -> np.ndarray:
        """Gradients taken so far [tasks, kinds]: inner, held-out, Hessian products."""
        counts = [learner.counts.numpy() for learner in self.learners.values()]
        return np.array(counts) if counts else np.zeros((0, len(COUNTED)), int)

    def counts(self) -> np.ndarray:
        """Gradients taken so far over all tasks."""
        return self.counts_by_task().sum(0)

    def states(self) -> dict[str, dict[str, Tensor]]:
        """Copies of every task's complete state."""
        states = {}
        for name, learner in self.learners.items():
            states[name] = {key: value.detach().cpu().clone() for key, value in learner.state().items()}
            states[name]["dropped"] = torch.tensor([name in self.dropped])
        return states

    def load_states(self, states: Mapping[str, dict[str, Tensor]]) -> None:
        self.dropped = set()
        for name, learner in self.learners.items():
            state = dict(states[name])
            if state.pop("dropped").item():
                self.dropped.add(name)
            learner.load_state(state)
        alive = [name not in self.dropped for name in self.learners]
        self.alive = torch.tensor(alive, dtype=torch.bool, device=self.device)
