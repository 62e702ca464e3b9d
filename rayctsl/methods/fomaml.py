"""First-order MAML (Finn et al., 2017) and its relatives: held-out gradients at the adapted parameters move phi."""

from __future__ import annotations

from torch import Tensor

from rayctsl.config import FomamlPPConfig
from rayctsl.methods.base import Learner, Method, Step, remember


class Fomaml(Method):
    """phi <- phi - beta * mean_t grad L_held_out(theta_K^t)."""

    needs_held_out = True

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return -learner.held_out_gradient(step.index)


class FomamlShifting(Fomaml):
    """FOMAML's gradient after every step, with the trajectory shifted by the same delta (factor 1)."""

    def updates_at(self, step: Step) -> bool:
        return True

    def shift(self, learner: Learner, phi: Tensor, delta: Tensor, step: Step) -> None:
        learner.theta.add_(delta)


class Anil(Fomaml):
    """Almost no inner loop (Raghu et al., 2020): inner steps move the head alone, the backbone learns from outside."""

    head_only = True

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        loss = learner.compute_gradient(step.index, head_only=True)
        learner.apply_gradient(head_only=True)
        return loss


class FomamlPP(Fomaml):
    """FOMAML with MAML++'s multi-step loss (Antoniou et al., 2019).

    The meta-gradient is sum_i w_i grad L_held_out(theta_{k_i}) at every `every`-th step. The weights start equal and
    move to the last step alone over `anneal_trajectories`.
    """

    def __init__(self, config: FomamlPPConfig, seed: int = 0):
        super().__init__(config, seed)
        self.every, self.anneal = config.every, config.anneal_trajectories

    def weight(self, step: Step) -> float:
        """The weight of a held-out gradient after this step; 0 where none is taken."""
        last = step.k == step.K
        if step.k % self.every and not last:
            return 0.0
        count = step.K // self.every + (step.K % self.every > 0)
        annealed = min(step.m / self.anneal, 1.0) if self.anneal else 0.0
        return (1 - annealed) / count + annealed * last

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        accumulated = remember(learner, "multi_step")
        if step.k == 1:
            accumulated.zero_()
        loss = super().inner_step(learner, phi, step)
        weight = self.weight(step)
        if weight:
            accumulated.add_(learner.held_out_gradient(step.index), alpha=weight)
        return loss

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return -remember(learner, "multi_step")
