"""The meta-learner: phi, and the rule that turns the tasks' contributions into its next move."""

from __future__ import annotations

from torch import Tensor

from rayctsl.config import Config
from rayctsl.flat import build_optimizer, copy_state
from rayctsl.methods import Method


class MetaLearner:
    """phi and the outer optimizer. `pending` is a total that waits to be applied one step late (shift_delay 1)."""

    def __init__(self, config: Config, method: Method, phi: Tensor):
        self.phi = phi.clone()
        self.beta = method.beta
        self.optimizer = build_optimizer(config.outer or method.outer_rule(config.inner), self.phi)
        self.pending: Tensor | None = None

    def update(self, total: Tensor) -> Tensor:
        """phi <- phi + delta for the sum of contributions, whose last entry counts the tasks; returns delta."""
        gradient = total[:-1].div(total[-1]).neg_()
        delta = self.optimizer.direction(self.phi, gradient).mul(-self.beta)
        self.phi.add_(delta)
        return delta

    def state(self) -> dict[str, Tensor]:
        """Live references to the complete state, for snapshots."""
        state = {"phi": self.phi, **{f"optimizer.{name}": value for name, value in self.optimizer.state.items()}}
        return state if self.pending is None else {**state, "pending": self.pending}

    def load_state(self, state: dict[str, Tensor]) -> None:
        pending = state.get("pending")
        self.pending = None if pending is None else pending.to(self.phi.device, copy=True)
        copy_state(self.state(), state)
