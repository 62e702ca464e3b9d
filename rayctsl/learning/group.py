"""The tasks that one process hosts: they step together and speak with one summed vector."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.learning.exact_sum import Grid
from rayctsl.learning.processor import keep_freed_memory, why_not_bf16
from rayctsl.learning.task_learner import COUNTED, TaskLearner
from rayctsl.learning.tasks import Task
from rayctsl.methods import Method, Step


class NonFiniteLoss(ValueError):
    """A task's loss became NaN or infinite, and the policy is to stop."""

    exit_code = 1


class TaskGroup:
    """Some tasks' learners, in the order of the config."""

    def __init__(self, tasks: list[Task], config: Config, method: Method):
        self.config, self.method, self.grid = config, method, Grid.of(config, method)
        keep_freed_memory()
        self.learners = {task.name: TaskLearner(task, config) for task in tasks}
        self.dropped: set[str] = set()
        self.seconds = dict.fromkeys(self.learners, 0.0)  # computing time per task since the last `take_seconds`

    @property
    def notices(self) -> list[str]:
        """What the user should know about how this group computes."""
        kinds = {learner.theta.device.type for learner in self.learners.values()}
        reasons = [why_not_bf16(kind) for kind in kinds] if self.config.precision == "bf16" else []
        return [f"precision bf16 is not used, but fp32: {reason}" for reason in reasons if reason]

    @property
    def active(self) -> list[TaskLearner]:
        return [learner for name, learner in self.learners.items() if name not in self.dropped]

    def begin_trajectory(self, phi: Tensor) -> None:
        for learner in self.active:
            learner.begin_trajectory(phi)

    def inner_step(self, phi: Tensor, step: Step) -> np.ndarray:
        """One inner step of every task; returns the losses [tasks], NaN for dropped ones."""
        losses = np.full(len(self.learners), np.nan)
        for place, (name, learner) in enumerate(self.learners.items()):
            if name in self.dropped:
                continue
            started = time.perf_counter()
            losses[place] = self.method.inner_step(learner, phi, step)
            self.seconds[name] += time.perf_counter() - started
            if not math.isfinite(losses[place]):
                self._handle_non_finite(name, float(losses[place]), step)
        return losses

    def contribution(self, phi: Tensor, step: Step) -> Tensor:
        """The sum over this group's tasks in units of the grid, with the number of tasks as its last entry."""
        total = self.grid.no_tasks(phi)
        for learner in self.active:
            pull = self.method.contribution(learner, phi, step)
            # A step from a finite loss may still overflow: catch it before it reaches phi and everyone else.
            if not self.grid.add(total, pull):
                self._handle_non_finite(learner.task.name, pull.abs().amax().item(), step)
        return total

    def shift(self, phi: Tensor, delta: Tensor, step: Step) -> None:
        for learner in self.active:
            self.method.shift(learner, phi, delta, step)

    def _handle_non_finite(self, name: str, value: float, step: Step) -> None:
        if self.config.on_non_finite == "drop":
            self.dropped.add(name)
            return
        where = f"inner step {step.k} of trajectory {step.m + 1}"
        raise NonFiniteLoss(
            f"task {name!r} diverged (a {value:g} at {where}); lower beta or alpha, or set on_non_finite=drop"
        )

    def take_seconds(self) -> dict[str, float]:
        """Computing seconds per task since the last call."""
        taken, self.seconds = self.seconds, dict.fromkeys(self.learners, 0.0)
        return taken

    def counts(self) -> np.ndarray:
        """Gradients taken so far over all tasks: inner, held-out, Hessian products."""
        counts = [learner.counts.numpy() for learner in self.learners.values()]
        return np.sum(counts, axis=0) if counts else np.zeros(len(COUNTED), int)

    def states(self) -> dict[str, dict[str, Tensor]]:
        """Copies of every task's complete state."""
        states = {}
        for name, learner in self.learners.items():
            states[name] = {key: value.detach().cpu().clone() for key, value in learner.state().items()}
            states[name]["dropped"] = torch.tensor([name in self.dropped])
        return states

    def load_states(self, states: dict[str, dict[str, Tensor]]) -> None:
        self.dropped = {name for name in self.learners if states[name]["dropped"].item()}
        for name, learner in self.learners.items():
            learner.load_state({key: value for key, value in states[name].items() if key != "dropped"})
