"""The meta-learner: phi, and the rule that turns the tasks' contributions into its next move."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.flat import build_optimizer, copy_state
from rayctsl.learning.exact_sum import Grid
from rayctsl.methods import Method

PENDING = "pending_multiples"


class OuterLearner:
    """phi and the outer optimizer. `pending` is a total that waits to be applied one step late (shift_delay 1).

    Every process has a replica, perhaps on another kind of processor. So an update consists of single operations that
    all processors round alike, and never of fused ones.

    Reference: `average` is an exponential moving average of phi (Polyak and Juditsky, 1992). It moves nothing and costs
    no traffic. `disagreement` is the mean squared contribution over the squared mean one: 1 when all tasks pull alike,
    as large as their number when their pulls are at right angles. `adaptive_beta` multiplies beta by half of it, by 1
    at least (FedExP, Jhunjhunwala et al., 2023, Eq. (6)).
    """

    def __init__(self, config: Config, method: Method, phi: Tensor, grid: Grid | None = None):
        self.phi = phi.clone()
        self.grid = grid or Grid.of(config, method)
        self._rate, self.adaptive = self.phi.new_full((), -method.beta), config.method.adaptive_beta
        self.disagreement = phi.new_full((), float("nan"), dtype=torch.float64)
        self.optimizer = build_optimizer(config.outer or method.outer_rule(config.inner), self.phi)
        self.pending: Tensor | None = None
        self.decay = config.method.average
        self.average = self.phi.clone() if self.decay else None

    def update(self, total: Tensor) -> Tensor:
        """phi <- phi + delta for a total in units of the grid, whose last entry counts the tasks; returns delta.

        Without a task (all have diverged, or one has and the run will stop for it) phi stays where it is.
        """
        gradient = self.grid.mean(total, self.phi).neg_()
        self.disagreement = self.grid.mean_square(total) / torch.linalg.vector_norm(gradient).double().square()
        delta = self.optimizer.direction(self.phi, gradient).mul(torch.where(total[-1] > 0, self._rate, 0))
        if self.adaptive:
            delta.mul_((self.disagreement / 2).clamp(min=1.0).nan_to_num(1.0, 1.0))
        self.phi.add_(delta)
        if self.average is not None:
            self.average.mul_(self.decay).add_(self.phi.mul(1 - self.decay))
        return delta

    def state(self) -> dict[str, Tensor]:
        """Live references to the complete state, for snapshots."""
        state = {"phi": self.phi, **{f"optimizer.{name}": value for name, value in self.optimizer.state.items()}}
        optional = {PENDING: self.pending, "average": self.average}
        return state | {name: value for name, value in optional.items() if value is not None}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if (sums := state.get("pending")) is not None:  # of a snapshot from before there was a grid
            units = self.grid.no_tasks(self.phi)
            self.grid.add(units, sums[:-1].to(self.phi.device))
            units[-1] = sums[-1]
            state = {**{name: value for name, value in state.items() if name != "pending"}, PENDING: units}
        pending = state.get(PENDING)
        self.pending = None if pending is None else pending.to(self.phi.device, copy=True)
        copy_state(self.state(), state)


def kept_phi(state: Mapping[str, Tensor]) -> Tensor:
    """What a run leaves as its initialization: the average of phi where there is one, else phi."""
    return state.get("average", state["phi"])
