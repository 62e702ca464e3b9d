"""The inner rate at every step of a run: alpha, or what a schedule makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

from rayctsl.config import Config
from rayctsl.methods import Step

SHAPES: dict[str, Callable[[float], float]] = {  # share of the way -> share of alpha
    "constant": lambda way: 1.0,
    "linear": lambda way: 1.0 - way,
    "cosine": lambda way: (1.0 + math.cos(math.pi * way)) / 2,
}


def alpha_at(config: Config, index: int) -> float:
    """alpha for inner step number `index` of the run; never zero, for the way ends one step after the last.

    Reference: cosine annealing with warm restarts (Loshchilov and Hutter, 2017), a restart with every trajectory.
    """
    step = Step.at(index, config.inner_steps)
    within = SHAPES[config.schedule.within]((step.k - 1) / step.K)
    over = SHAPES[config.schedule.over](step.m / config.trajectories)
    return config.inner.alpha * within * over
