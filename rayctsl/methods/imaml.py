"""iMAML (Rajeswaran et al., 2019): the meta-gradient of a regularised inner problem, by implicit differentiation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rayctsl.config import ImamlConfig
from rayctsl.methods.base import Learner, Method, Step


class Imaml(Method):
    """g solves (I + H / lambda) g = grad L_held_out(theta_K), H the Hessian of the training loss at theta_K.

    Inner steps minimise L + lambda/2 |theta - phi|^2 (switch `proximal` off for plain steps). Damping adds to H's
    diagonal, because a network's Hessian need not be positive.
    """

    mixes_theta = True

    needs_held_out = True

    def __init__(self, config: ImamlConfig, seed: int = 0):
        super().__init__(config, seed)
        self.strength, self.proximal = config.regularization, config.proximal
        self.cg_steps, self.damping = config.cg_steps, config.cg_damping

    def inner_step(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        loss = learner.compute_gradient(step.index)
        if self.proximal:
            learner.theta_grad.add_(learner.theta - phi, alpha=self.strength)
        learner.apply_gradient()
        return loss

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        target = learner.held_out_gradient(step.index)
        hessian = learner.hessian(step.index)

        def operator(v: Tensor) -> Tensor:
            return v + (hessian(v) + self.damping * v) / self.strength

        return -conjugate_gradient(operator, target, self.cg_steps)


def conjugate_gradient(operator: Callable[[Tensor], Tensor], target: Tensor, steps: int) -> Tensor:
    """Approximately solve operator(x) = target, starting from zero.

    The solve ends early where nothing remains or the operator turns out not to be positive definite: the answer so far
    is the best there is then, the plain gradient at worst. The end is a mask, so that an accelerator is not waited for.
    """
    solution, residual = torch.zeros_like(target), target.clone()
    direction, rest = residual.clone(), residual.dot(residual)
    going = torch.ones_like(rest, dtype=torch.bool)
    for _ in range(steps):
        image = operator(direction)
        curvature = direction.dot(image)
        going = going & (rest != 0) & ~(curvature <= 0)
        length = torch.where(going, rest / curvature, 0)
        solution.add_(torch.where(going, direction * length, 0))
        residual.sub_(torch.where(going, image * length, 0))
        rest, previous = residual.dot(residual), rest
        direction = torch.where(going, residual + direction * (rest / previous), direction)
    return torch.where(solution.any(), solution, target)
