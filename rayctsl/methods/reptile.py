"""Reptile (Nichol et al., 2018): phi moves towards where the tasks ended."""

from __future__ import annotations

from torch import Tensor

from rayctsl.methods.base import Learner, Method, Step


class Reptile(Method):
    """One meta-update a trajectory: phi <- phi + beta * mean_t (theta_K^t - phi)."""

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return learner.theta - phi
