"""All surfaces from many starts as one learner, so that the ordinary loop and methods run vectorised.

theta is [tasks, 2 starts] (all x, then all y) and phi is [2 starts]: what a method writes for one task's vector, such
as `theta - phi` or `theta.add_(delta)`, holds for all of them by broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.experiments.synthetic.surfaces import Environment, Surfaces
from rayctsl.flat import build_optimizer, copy_state
from rayctsl.learning.exact_sum import Unrounded
from rayctsl.learning.group import TaskGroup
from rayctsl.learning.schedule import alpha_at
from rayctsl.learning.task_learner import COUNTED, InnerLearner
from rayctsl.methods import Method, Step


def flatten_points(points: np.ndarray) -> Tensor:
    """Points [S, 2] as a phi [2 S]."""
    return torch.from_numpy(np.asarray(points, float).T.reshape(-1).copy())


def unflatten_points(vectors: np.ndarray) -> np.ndarray:
    """Vectors [..., 2 S] as points [..., S, 2]."""
    return np.swapaxes(vectors.reshape(*vectors.shape[:-1], 2, -1), -1, -2)


class SurfaceLearner:
    """The learner of all tasks and starts; counts gradients as one start does."""

    def __init__(self, environments: Sequence[Environment], phi: Tensor, config: Config):
        self.config, self.surfaces = config, Surfaces(environments)
        self.num_tasks = len(environments[0].angles)
        self.theta = phi.repeat(self.num_tasks, 1)
        self.theta_grad, self.head = torch.zeros_like(self.theta), self.theta.new_empty(0)
        self.optimizer = build_optimizer(config.inner, self.theta)
        self.alpha = config.inner.alpha
        self.memory: dict[str, Tensor] = {}
        self.counts = torch.zeros(len(COUNTED), dtype=torch.int64)
        # The same memory as theta and its gradient: numpy is several times quicker than torch on arrays this small.
        self._points = self.theta.numpy().reshape(self.num_tasks, 2, -1)
        self._slopes = self.theta_grad.numpy().reshape(self.num_tasks, 2, -1)
        self.heights = np.full((self.num_tasks, self._points.shape[2]), np.nan)

    def begin_trajectory(self, phi: Tensor) -> None:
        self.theta.copy_(phi)
        if self.config.reset.optimizer == "reset":
            self.optimizer.reset()

    def compute_gradient(self, index: int, *, head_only: bool = False) -> Tensor:
        self.alpha = alpha_at(self.config, index)
        self.heights = self.surfaces.heights(self._points, self._slopes)
        self.counts[0] += self.num_tasks
        return torch.tensor(self.heights.sum())

    def apply_gradient(self, *, head_only: bool = False) -> None:
        # Some runs amplify a rounding error ten million times: keep to the plain product and difference of the
        # textbook, which every program rounds alike, and not the fused operation.
        if not head_only:  # a surface has no head
            direction = self.optimizer.direction(self.theta, self.theta_grad)
            self.theta.sub_(direction * self.alpha)

    def held_out_gradient(self, index: int) -> Tensor:
        """A surface is the same for every batch."""
        self.surfaces.heights(self._points, self._slopes)
        self.counts[1] += self.num_tasks
        return self.theta_grad.clone()

    def training_loss(self, index: int) -> Tensor:
        raise NotImplementedError("one loss for all tasks is of no use to a method")

    def hessian(self, index: int) -> Callable[[Tensor], Tensor]:
        raise NotImplementedError("one Hessian for all tasks is of no use to a method")

    def adaptation_state(self) -> dict[str, Tensor]:
        return {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}

    def load_adaptation_state(self, state: dict[str, Tensor]) -> None:
        copy_state(self.adaptation_state(), state)


class SurfaceGroup(TaskGroup):
    """The group of one `SurfaceLearner`: what the loop sees is the sum over its tasks."""

    def __init__(self, environments: Sequence[Environment], phi: Tensor, config: Config, method: Method):
        super().__init__([], config, method)
        self.grid = Unrounded()
        self.learner = SurfaceLearner(environments, phi, config)
        self.learners = cast("dict[str, InnerLearner]", {"surfaces": self.learner})
        self.names = environments[0].names
        self.alive = torch.ones(len(self.names), dtype=torch.bool)

    def inner_step(self, phi: Tensor, step: Step) -> Tensor:
        self.method.inner_step(self.learner, phi, step)
        losses = self.learner.heights.sum(1)
        self._check(losses, step)
        return torch.from_numpy(losses)

    def contribution(self, phi: Tensor, step: Step) -> Tensor:
        pull = self.method.contribution(self.learner, phi, step)
        # Task after task, as a loop would add them up (torch adds in another order, so with other rounding errors).
        sums = [*pull.numpy().sum(0), pull.square().sum().item(), self.learner.num_tasks]
        total = torch.from_numpy(np.array(sums))
        if not math.isfinite(total.sum().item()):
            self._check(pull.sum(1).numpy(), step)
        return total

    def _check(self, values: np.ndarray, step: Step) -> None:
        if not math.isfinite(values.sum()):
            worst = int(np.argmin(np.isfinite(values)))
            raise self.diverged(self.names[worst], step, f"{values[worst]:g}")
