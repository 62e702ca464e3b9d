"""What every method has in common: the hooks that the one loop calls, in the order of the paper's Algorithm 2.

Legend: theta is a task's backbone parameters, phi the shared initialization, delta the meta-update, alpha and beta the
inner and the meta learning rate, k the inner step within a trajectory of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from rayctsl.config import MethodConfig, OptimizerConfig


@dataclass(frozen=True)
class Step:
    """One place in a run: trajectory m (from 0), inner step k (from 1) of K.

    Example: Step(m=2, k=1, K=100) is the run's inner step number 200, counted from 0.
    """

    m: int
    k: int
    K: int

    @property
    def index(self) -> int:
        return self.m * self.K + self.k - 1

    @classmethod
    def at(cls, index: int, inner_steps: int) -> Step:
        return cls(m=index // inner_steps, k=index % inner_steps + 1, K=inner_steps)


class Learner(Protocol):
    """The side of a task learner that methods see."""

    theta: Tensor
    theta_grad: Tensor
    head: Tensor  # the task's own last layer, trained with theta; empty where there is none
    memory: dict[str, Tensor]  # what a method keeps of a task between steps; part of every snapshot

    def compute_gradient(self, index: int, *, head_only: bool = False) -> Tensor: ...
    def apply_gradient(self, *, head_only: bool = False) -> None: ...
    def held_out_gradient(self, index: int) -> Tensor: ...
    def training_loss(self, index: int) -> Tensor: ...
    def hessian(self, index: int) -> Callable[[Tensor], Tensor]: ...
    def adaptation_state(self) -> dict[str, Tensor]: ...
    def load_adaptation_state(self, state: dict[str, Tensor]) -> None: ...


class Method:
    """A meta-learning method; the loop calls it like this:

        for m in 1..M:
            theta <- phi for every task
            for k in 1..K:
                for every task: losses[task] = method.inner_step(learner, phi, step)
                if method.updates_at(step):
                    total = sum over tasks of method.contribution(learner, phi, step)
                    delta = outer_optimizer(-total / tasks);  phi += delta
                    for every task: method.shift(learner, phi, delta, step)

    The default is Reptile's skeleton: plain inner steps, one meta-update at k = K, no shift.
    """

    needs_held_out: ClassVar[bool] = False
    head_only: ClassVar[bool] = False  # inner steps leave theta where it is
    mixes_theta: ClassVar[bool] = False  # norms or products of theta: two tasks cannot be parts of one vector
    mixes_delta: ClassVar[bool] = False  # norms or products of delta: two runs cannot be parts of one vector
    shift_delay: int = 0

    def __init__(self, config: MethodConfig, seed: int = 0):
        self.config, self.seed = config, seed
        assert config.beta is not None
        self.beta = config.beta

    def select_tasks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The tasks that take part."""
        return names

    def outer_rule(self, inner: OptimizerConfig) -> OptimizerConfig:
        """The rule that turns meta-gradients into delta when the config names none."""
        return OptimizerConfig(optimizer="sgd")

    def limit_bits(self, inner_steps: int) -> int:
        """p, where 2^p is larger than any entry of a contribution of a task that has not diverged."""
        return 10

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        """Move theta by one inner step; returns the training loss before it.

        Nothing here may look at a number (`.item()`, `if tensor`): on an accelerator the whole step would wait for it.
        """
        loss = learner.compute_gradient(step.index)
        learner.apply_gradient()
        return loss

    def updates_at(self, step: Step) -> bool:
        """Whether a meta-update follows this inner step."""
        return step.k == step.K

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        """The direction in which this task pulls phi."""
        raise NotImplementedError

    def shift(self, learner: Learner, phi: Tensor, delta: Tensor, step: Step) -> None:
        """Let theta follow the meta-update (phi has already moved by delta)."""


def remember(learner: Learner, name: str) -> Tensor:
    """A vector like theta that a method keeps for a task; zeros at first."""
    if name not in learner.memory:
        learner.memory[name] = torch.zeros_like(learner.theta)
    return learner.memory[name]
