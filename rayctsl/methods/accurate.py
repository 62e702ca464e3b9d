"""The paper's "Ours Accurate": the meta-updates of shifting without its approximation, at quadratic cost."""

from __future__ import annotations

from torch import Tensor

from rayctsl.methods.base import Learner, Method, Step


class Accurate(Method):
    """At every k the trajectory is run again from the present phi: theta = U_k(phi), exactly.

    A re-run starts from the optimizer statistics, head and batch-norm statistics that the trajectory started with,
    and sees the trajectory's first k batches.
    """

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        state = learner.adaptation_state()
        if step.k == 1:
            learner.memory.update({f"start.{name}": value.clone() for name, value in state.items()})
        learner.load_adaptation_state({name: learner.memory[f"start.{name}"] for name in state})
        learner.theta.copy_(phi)
        for index in range(step.index - step.k + 1, step.index + 1):
            loss = learner.compute_gradient(index)
            learner.apply_gradient()
        return loss

    def updates_at(self, step: Step) -> bool:
        return True

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return learner.theta - phi
