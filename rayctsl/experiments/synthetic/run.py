"""Meta-training on the synthetic surfaces: the loop and the methods that train networks, on points in the plane.

`meta_train` runs a method from one start or from many at once; `losses_along` measures what a point is worth as an
initialization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rayctsl.config import Config, build_config
from rayctsl.contract import JsonObject
from rayctsl.experiments.synthetic.surface_group import SurfaceGroup, SurfaceLearner, flatten_points, unflatten_points
from rayctsl.experiments.synthetic.surfaces import Environment
from rayctsl.learning.exact_sum import Unrounded
from rayctsl.learning.group import TaskGroup
from rayctsl.learning.loop import run_steps
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.methods import Method, Step, build_method

POINTS_AT_ONCE = 4096  # arrays of this many points stay in the processor's cache


def synthetic_config(
    method: str = "shifting",
    *,
    alpha: float = 0.05,
    beta: float = 0.1,
    inner_steps: int = 100,
    trajectories: int = 3,
    optimizer: str = "momentum",
    seed: int = 0,
) -> Config:
    """The paper's synthetic setting, with as many trajectories as give every method trajectories x K meta-updates."""
    raw: JsonObject = {
        "seed": seed,
        "inner_steps": inner_steps,
        "trajectories": trajectories,
        "method": {"name": method, "beta": beta},
        "inner": {"optimizer": optimizer, "alpha": alpha, "momentum": 0.9, "weight_decay": 0.0},
        "reset": {"optimizer": "reset"},
    }
    config = build_config(raw)
    rule = build_method(config.method, seed)
    updates = sum(rule.updates_at(Step(0, k, inner_steps)) for k in range(1, inner_steps + 1))
    return build_config({**raw, "trajectories": -(-trajectories * inner_steps // updates)})


@dataclass(frozen=True)
class SyntheticRun:
    """What meta-training left, for every start.

    trajectory [updates + 1, starts, 2] begins with the starts; spent [updates + 1] counts the inner gradients of one
    start over all tasks up to each point of it; loss_after [starts] is the task-average loss K steps from the last.
    """

    trajectory: np.ndarray
    spent: np.ndarray
    loss_after: np.ndarray

    @property
    def inner_steps(self) -> int:
        return int(self.spent[-1])


def meta_train(
    environments: Environment | Sequence[Environment],
    starts: ArrayLike,
    config: Config,
    *,
    watch: Callable[[SurfaceGroup], None] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> SyntheticRun:
    """Meta-train from starts [S, 2], each a run of its own.

    Args:
        environments: one for all starts, or one for each of them.
        watch: sees the group after every inner step (and the shift that follows it).
        on_step: is told the number of every finished inner step.
    """
    environments = [environments] if isinstance(environments, Environment) else list(environments)
    method = build_method(config.method, config.seed)
    trained_on = [each.only(method.select_tasks(each.names)) for each in environments]
    starts = np.asarray(starts, float).reshape(-1, 2)
    group = _build_group(trained_on, starts, config, method)
    meta = OuterLearner(config, method, flatten_points(starts), group.grid)
    visited, spent = [meta.phi.clone().numpy()], [0]

    def after_step(index: int) -> None:
        if method.updates_at(Step.at(index, config.inner_steps)):
            visited.append(meta.phi.clone().numpy())
            spent.append(int(group.counts()[0]))
        if watch is not None:
            assert isinstance(group, SurfaceGroup)
            watch(group)
        if on_step is not None:
            on_step(index)

    run_steps(0, config.total_steps, config.inner_steps, method, group, meta, on_step=after_step)
    trajectory = unflatten_points(np.stack(visited))
    loss_after = losses_along(environments, trajectory[-1], config)[-1]
    return SyntheticRun(trajectory, np.array(spent), loss_after)


def _build_group(
    environments: list[Environment], starts: np.ndarray, config: Config, method: Method
) -> TaskGroup | SurfaceGroup:
    name = config.method.name
    if method.head_only:
        raise ValueError(f"method {name!r} adapts the head alone, and a surface has no head")
    if (method.mixes_theta or method.mixes_delta) and len(starts) > 1:
        raise ValueError(f"method {name!r} takes one start at a time")
    if method.mixes_theta:
        group = TaskGroup(list(environments[0].tasks(starts[0]).values()), config, method)
        group.grid = Unrounded()  # one process adds up; and some runs amplify a rounding error ten million times
        return group
    return SurfaceGroup(environments, flatten_points(starts), config, method)


def losses_along(
    environments: Environment | Sequence[Environment], points: np.ndarray, config: Config, steps: int | None = None
) -> np.ndarray:
    """Task-average losses [steps + 1, S] after 0, 1, 2, ... inner steps from points [S, 2]; K steps when not said."""
    environments = [environments] if isinstance(environments, Environment) else list(environments)
    steps = config.inner_steps if steps is None else steps
    pieces = []
    for first in range(0, len(points), POINTS_AT_ONCE):
        chunk = slice(first, first + POINTS_AT_ONCE)
        here = environments if len(environments) == 1 else environments[chunk]
        learner = SurfaceLearner(here, flatten_points(points[chunk]), config)
        losses = np.empty((steps + 1, learner.heights.shape[1]))
        for k in range(steps + 1):
            learner.compute_gradient(k)
            losses[k] = learner.heights.mean(0)
            learner.apply_gradient()
        pieces.append(losses)
    return np.concatenate(pieces, axis=1)
