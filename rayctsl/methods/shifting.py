"""Continual trajectory shifting (Shin et al., ICML 2021, Algorithm 2): the paper's method."""

from __future__ import annotations

from torch import Tensor

from rayctsl.config import ShiftingConfig
from rayctsl.methods.base import Learner, Method, Step


class Shifting(Method):
    """A meta-update after every inner step, and the same shift for phi and every theta.

    Reference: Eq. (1). U_k(phi + Delta_1 + ... + Delta_{k-1}) is taken to be U_1(... U_1(U_1(phi) + Delta_1) ...
    + Delta_{k-1}), with Delta_k = -beta * mean_t (phi - theta_k^t). `pull` then draws theta towards phi, as PAPA
    does with a population's mean (Jolicoeur-Martineau et al., 2024).
    """

    def __init__(self, config: ShiftingConfig, seed: int = 0):
        super().__init__(config, seed)
        self.aggregate_every, self.shift_delay, self.pull = config.aggregate_every, config.shift_delay, config.pull

    def updates_at(self, step: Step) -> bool:
        return step.k % self.aggregate_every == 0 or step.k == step.K

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return learner.theta - phi

    def shift(self, learner: Learner, phi: Tensor, delta: Tensor, step: Step) -> None:
        learner.theta.add_(delta)
        if self.pull:
            learner.theta.lerp_(phi, self.pull)
