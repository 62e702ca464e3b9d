"""The paper's two ablations: meta-updates after every step, but the trajectories do not follow them (Figure 8)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rayctsl.device import send
from rayctsl.methods.base import Learner, Method, Step


class NoShifting(Method):
    """phi moves after every step, theta stays where it is."""

    def updates_at(self, step: Step) -> bool:
        return True

    def contribution(self, learner: Learner, phi: Tensor, step: Step) -> Tensor:
        return learner.theta - phi


class RandomShifting(NoShifting):
    """Every theta moves as far as phi did, in one random direction that all tasks share."""

    mixes_delta = True

    def shift(self, learner: Learner, phi: Tensor, delta: Tensor, step: Step) -> None:
        (number,) = np.random.SeedSequence([self.seed, step.index]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(number))
        noise = send(torch.randn(delta.shape, generator=generator, dtype=delta.dtype), delta.device)
        learner.theta.add_(noise.mul_(delta.norm() / noise.norm()))
