"""A learning rate and a number of steps for people who do not want to choose, measured on held-out training images.

Every rate is tried for a few steps on four fifths of the training images and judged on the last fifth; then the steps
are doubled while that still helps. The test images are never looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rayctsl.config import FinetuneConfig
from rayctsl.data.batches import split_indices
from rayctsl.data.library import Dataset
from rayctsl.device import choose_device
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.start import Start

HELD_OUT = 0.2
GAIN = 0.005  # of the held-out accuracy, for which it is worth doubling the steps
MEASURED_STEPS = 3
SEARCH_SHARE = 0.3  # of a time limit


@dataclass(frozen=True)
class Preset:
    """What is tried."""

    rates: tuple[float, ...]
    trial_steps: int
    max_steps: int


PRESETS = {
    "quick": Preset((0.1, 0.02), 30, 200),
    "good": Preset((0.2, 0.05, 0.0125), 100, 1000),
    "best": Preset((0.4, 0.1, 0.03, 0.01, 0.003), 200, 4000),
}


@dataclass(frozen=True)
class Suggestion:
    """The recipe, and what it was chosen by: held-out accuracy by (rate, steps)."""

    config: FinetuneConfig
    tried: dict[tuple[float, int], float]


def choose_recipe(
    start: Start, dataset: Dataset, config: FinetuneConfig, preset: str | None, time_limit: float | None = None
) -> Suggestion:
    """The config with a rate and steps measured for this start and dataset.

    Args:
        preset: how much is tried; without one the rate stays, and only the time limits the steps.
        time_limit: seconds for the search and all seeds' training, one after the other.
    """
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset {preset!r} is unknown; choose {', '.join(PRESETS)}")
    budget = None
    if time_limit is not None:
        budget = max(1, int(time_limit / _step_seconds(start, dataset, config)))
    if preset is None:
        assert budget is not None
        return Suggestion(config.model_copy(update={"steps": min(config.steps, _each(budget, config))}), {})
    plan = PRESETS[preset]
    trial = plan.trial_steps
    if budget is not None:
        trial = max(1, min(trial, int(SEARCH_SHARE * budget) // (len(plan.rates) + 1)))
    tried = {(rate, trial): _judge(start, dataset, config, rate, trial) for rate in plan.rates}
    rate = max(tried, key=lambda pair: tried[pair])[0]
    most = plan.max_steps if budget is None else min(plan.max_steps, _each(budget - trial * len(plan.rates), config))
    steps = most if budget is not None else _enough_steps(start, dataset, config, rate, trial, most, tried)
    return Suggestion(config.model_copy(update={"alpha": rate, "steps": max(1, steps)}), tried)


def _each(budget: int, config: FinetuneConfig) -> int:
    return max(1, budget // config.seeds)


def _enough_steps(
    start: Start,
    dataset: Dataset,
    config: FinetuneConfig,
    rate: float,
    steps: int,
    most: int,
    tried: dict[tuple[float, int], float],
) -> int:
    """Double the steps while the held-out accuracy gains by it."""
    while steps < most:
        longer = min(2 * steps, most)
        tried[rate, longer] = _judge(start, dataset, config, rate, longer)
        if tried[rate, longer] < tried[rate, steps] + GAIN:
            return longer if tried[rate, longer] > tried[rate, steps] else steps
        steps = longer
    return steps


def _judge(start: Start, dataset: Dataset, config: FinetuneConfig, rate: float, steps: int) -> float:
    tuner = _tuner(start, dataset, config.model_copy(update={"alpha": rate, "steps": steps, "evaluate_every": steps}))
    tuner.run()
    point = tuner.curve[-1]
    return point.accuracy if point.loss == point.loss else 0.0  # a rate that diverged is no good


def _tuner(start: Start, dataset: Dataset, config: FinetuneConfig) -> Finetuner:
    kept, held_out = split_indices(len(dataset.train), HELD_OUT, 0, f"{dataset.name}/suggestion")
    module = start.build(dataset.num_classes, 0)
    parts = {"train_indices": kept, "test_indices": held_out}
    return Finetuner(module, dataset, config, seed=0, phi=start.phi, device=choose_device(), **parts)


def _step_seconds(start: Start, dataset: Dataset, config: FinetuneConfig) -> float:
    tuner = _tuner(start, dataset, config.model_copy(update={"steps": 10**6, "evaluate_every": 10**6}))
    tuner.run(1)  # the first one also pays for what is made once
    begun = time.perf_counter()
    tuner.run(1 + MEASURED_STEPS)
    tuner.state()  # waits for the device
    return (time.perf_counter() - begun) / MEASURED_STEPS
