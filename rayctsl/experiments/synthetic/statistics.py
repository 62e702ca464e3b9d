"""Synthetic results over many drawn environments, for what must not hang on one draw of the angles.

An environment counts once, with the mean over its starts: starts that end together are not independent.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rayctsl.config import Config
from rayctsl.experiments.synthetic.run import losses_along, meta_train, synthetic_config
from rayctsl.experiments.synthetic.surfaces import Environment
from rayctsl.statistics import mean_and_interval

NUM_ENVIRONMENTS = 20
EDGE_STARTS = [(-5, 5), (15, 5), (5, -5), (5, 15), (-5, -5), (15, -5), (-5, 15), (15, 15)]


def drawn_environments(seed: int) -> list[Environment]:
    return [Environment.draw(seed + number) for number in range(NUM_ENVIRONMENTS)]


def quality_along(config: Config, seed: int, points: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Inner steps spent [P], and log10 of the task-average loss 100 momentum steps from phi [P, environments]."""
    environments = [each for each in drawn_environments(seed) for _ in EDGE_STARTS]
    run = meta_train(environments, EDGE_STARTS * NUM_ENVIRONMENTS, config)
    chosen = np.unique(np.geomspace(1, len(run.spent) - 1, points).astype(int)) if points > 1 else np.array([-1])
    visited = run.trajectory[chosen].reshape(-1, 2)
    loss = losses_along(environments * len(chosen), visited, synthetic_config())[-1]
    return run.spent[chosen], np.log10(loss).reshape(len(chosen), NUM_ENVIRONMENTS, -1).mean(-1)


def intervals(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and half widths of the 95 % intervals along the last axis of [N, samples]."""
    pairs = np.array([mean_and_interval(row.tolist()) for row in rows])
    return pairs[:, 0], pairs[:, 1]


def compare(ends: Mapping[str, np.ndarray], favourite: str) -> dict[str, tuple[float, float] | int]:
    """Mean and interval of every contestant's log10 loss, and the favourite's paired differences to the others."""
    result: dict[str, tuple[float, float] | int] = {
        name: mean_and_interval(values.tolist()) for name, values in ends.items()
    }
    for rival in ends:
        if rival != favourite:
            difference = ends[favourite] - ends[rival]
            result[f"{favourite} - {rival}"] = mean_and_interval(difference.tolist())
            result[f"environments where {favourite} is better than {rival}"] = int((difference < 0).sum())
    return result
