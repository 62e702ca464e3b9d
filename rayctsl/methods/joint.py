"""Joint training (`mtl`), plain training on one source (`single`), and no training at all (`scratch`)."""

from __future__ import annotations

from torch import Tensor

from rayctsl.config import OptimizerConfig, SingleConfig
from rayctsl.methods.base import Learner, Method, Step


class Mtl(Method):
    """Multi-task learning: gradient descent on the mean loss of one shared backbone, with a head for every task.

    theta is phi at all times. phi moves by the inner optimizer's rule with rate beta, the heads with rate alpha.
    """

    def outer_rule(self, inner: OptimizerConfig) -> OptimizerConfig:
        return OptimizerConfig(**{name: getattr(inner, name) for name in OptimizerConfig.model_fields})

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        loss = learner.compute_gradient(step.index)
        learner.apply_gradient(head_only=True)
        return loss

    def updates_at(self, step: Step) -> bool:
        return True

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return -learner.theta_grad

    def shift(self, learner: Learner, phi: Tensor, delta: Tensor, step: Step) -> None:
        learner.theta.copy_(phi)


class Single(Mtl):
    """Ordinary training on one source dataset (the paper's: Tiny ImageNet)."""

    def __init__(self, config: SingleConfig, seed: int = 0):
        super().__init__(config, seed)
        self.source = config.source

    def select_tasks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return (self.source or names[0],)


class Scratch(Method):
    """The random initialization itself: the floor of every table."""
