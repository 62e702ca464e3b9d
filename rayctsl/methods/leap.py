"""Leap (Flennerhag et al., 2019): phi moves so that the tasks' paths across their loss surfaces get shorter."""

from __future__ import annotations

from torch import Tensor

from rayctsl.config import LeapConfig
from rayctsl.methods.base import Learner, Method, Step, remember


class Leap(Method):
    """The gradient of the path's length (or energy), pulled forward, with the Jacobians taken as the identity.

    Reference: with gamma_i = (theta_i, f_i) and the end of every segment held fixed,
    d/dphi sum_i |gamma_{i+1} - gamma_i|^p = -p sum_i |gamma_{i+1} - gamma_i|^{p-2} (dtheta_i + df_i grad f_i),
    where p = 1 is the length and p = 2 the energy. The stabilizer uses -|df_i| in place of df_i.
    The path is that of all the parameters a task trains: its length counts the head's way too, though phi has no head.
    A segment closes when the loss at its end is known, which is one inner step later.
    """

    mixes_theta = True

    def __init__(self, config: LeapConfig, seed: int = 0):
        super().__init__(config, seed)
        self.norm, self.loss, self.stabilizer = config.norm, config.loss, config.stabilizer

    def limit_bits(self, inner_steps: int) -> int:
        # K segments: of a length, at most 1 + |grad| each; of an energy, the changes of the loss times |grad|.
        return (10 if self.norm else 20) + (inner_steps - 1).bit_length()

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        loss = learner.compute_gradient(step.index)
        if step.k == 1:
            remember(learner, "pull").zero_()
        else:
            self._close_segment(learner, loss)
        remember(learner, "theta").copy_(learner.theta)
        remember(learner, "grad").copy_(learner.theta_grad)
        learner.memory["head"] = learner.head.clone()
        learner.memory["loss"] = loss.to(learner.theta, copy=True)
        learner.apply_gradient()
        return loss

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        # The last segment ends after the last step: its loss is one forward pass on the next batch.
        self._close_segment(learner, learner.training_loss(step.index + 1) if self.loss else None)
        return remember(learner, "pull")

    def _close_segment(self, learner: Learner, loss: Tensor | None) -> None:
        moved = learner.theta - remember(learner, "theta")
        head = learner.head - learner.memory["head"]
        pull, square = moved, moved.square().sum() + head.square().sum()
        if self.loss and loss is not None:
            change = loss - learner.memory["loss"]
            change = -change.abs() if self.stabilizer else change
            pull = moved + remember(learner, "grad") * change
            square = square + change**2
        pull = pull / square.sqrt().clamp(min=1e-12) if self.norm else pull * 2
        remember(learner, "pull").add_(pull)
