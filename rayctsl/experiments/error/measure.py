"""The approximation error of continual trajectory shifting (paper, Figure 3 and supplement C.4).

epsilon_k = U_k(phi + D_1 + ... + D_{k-1}) - U_1(... U_1(U_1(phi) + D_1) ... + D_{k-1}): where a trajectory ends that
really starts at the moved phi, less where the shifted trajectory is. Both sides see the same batches and the same
meta-updates D_i = beta * (random unit vector).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from rayctsl.config import build_config
from rayctsl.learning.task_learner import InnerLearner
from rayctsl.learning.tasks import Task, build_image_task


class Network(TypedDict):
    """What is trained, and where."""

    dataset: str
    data_root: str
    model: str
    width: int
    batch_size: int
    device: str


class DrawnNetwork(Network):
    """A network, its batches and its step size."""

    activation: str
    alpha: float
    draw: int


class ErrorArguments(DrawnNetwork):
    """What a cell is given."""

    beta: float
    lengths: list[int]
    one_direction: bool


def meta_update(like: Tensor, beta: float, seed: int, number: int) -> Tensor:
    """The meta-update D_number: length beta, direction drawn from (seed, number)."""
    direction = np.random.default_rng([seed, number]).standard_normal(like.shape)
    return torch.from_numpy(direction * (beta / np.linalg.norm(direction))).to(like)


def approximation_errors(
    learner: InnerLearner, beta: float, lengths: Sequence[int], *, seed: int = 0, one_direction: bool = False
) -> dict[int, float]:
    """The norm of epsilon_k over the backbone for every k in `lengths`.

    Args:
        learner: starts every trajectory afresh (reset.optimizer and reset.head are `reset`).
        one_direction: all D_i are the same vector, so that errors add up as in the worst case.
    """
    phi = learner.theta.clone()
    wanted, shifted_ends, starts = set(lengths), {}, {}
    moved = phi.clone()
    learner.begin_trajectory(phi)
    for k in range(1, max(lengths) + 1):
        _step(learner, k - 1)
        if k in wanted:
            shifted_ends[k], starts[k] = learner.theta.clone(), moved.clone()
        delta = meta_update(phi, beta, seed, 0 if one_direction else k)
        learner.theta.add_(delta)
        moved.add_(delta)
    errors = {}
    for k in sorted(wanted):
        learner.begin_trajectory(starts[k])
        for index in range(k):
            _step(learner, index)
        errors[k] = (learner.theta - shifted_ends[k]).double().norm().item()
    learner.begin_trajectory(phi)
    return errors


def _step(learner: InnerLearner, index: int) -> None:
    loss = learner.compute_gradient(index)
    if not math.isfinite(loss):
        raise ValueError(f"training diverged at step {index + 1} with alpha {learner.config.inner.alpha:g}; lower it")
    learner.apply_gradient()


def build_learner(keys: DrawnNetwork, task: Task | None = None) -> InnerLearner:
    """A learner with plain SGD, batch norm in training mode and everything reset between trajectories.

    Args:
        task: your own; else the dataset of the keys.
    """
    config = build_config(
        {
            "seed": keys["draw"],
            "model": {"name": keys["model"], "width": keys["width"], "activation": keys["activation"]},
            "data": {"tasks": [keys["dataset"]], "root": keys["data_root"], "batch_size": keys["batch_size"]},
            "inner": {"optimizer": "sgd", "alpha": keys["alpha"], "weight_decay": 0.0},
            "reset": {"optimizer": "reset", "head": "reset", "norm_stats": "reset"},
        }
    )
    return InnerLearner(task or build_image_task(keys["dataset"], config, device=keys["device"]), config)


def compute_cell(arguments: ErrorArguments) -> dict[str, float]:
    """One draw (network, batches and meta-updates) with one alpha, beta and activation: the error for each length."""
    errors = approximation_errors(
        build_learner(arguments),
        arguments["beta"],
        arguments["lengths"],
        seed=arguments["draw"],
        one_direction=arguments["one_direction"],
    )
    return {str(k): error for k, error in errors.items()}
