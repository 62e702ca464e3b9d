"""A learning rate and a number of steps for people who do not want to choose, measured on held-out training images.

Every rate is tried for a few steps on four fifths of the training images and judged on the last fifth; then the steps
are doubled while that still helps. The test images are never looked at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

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


OnTrial = Callable[[float, int, float], None]  # rate, steps, accuracy


@dataclass(frozen=True)
class Suggestion:
    """The recipe, and what it was chosen by: held-out accuracy by (rate, steps)."""

    config: FinetuneConfig
    tried: dict[tuple[float, int], float]


def choose_recipe(
    start: Start,
    dataset: Dataset,
    config: FinetuneConfig,
    preset: str | None,
    time_limit: float | None = None,
    on_trial: OnTrial | None = None,
) -> Suggestion:
    """The config with a rate and steps measured for this start and dataset.

    Args:
        preset: how much is tried; without one the rate stays, and only the time limits the steps.
        time_limit: seconds for the search and all seeds' training, one after the other.
    """
    check_choice(preset, time_limit)
    search = _Search(start, dataset, config, on_trial or (lambda rate, steps, accuracy: None))
    budget = None if time_limit is None else max(1, int(time_limit / search.step_seconds()))
    if preset is None:
        assert budget is not None, "a preset or a time limit"
        return Suggestion(config.model_copy(update={"steps": min(config.steps, _each(budget, config))}), {})
    plan = PRESETS[preset]
    trial = plan.trial_steps
    if budget is not None:
        trial = max(1, min(trial, int(SEARCH_SHARE * budget) // (len(plan.rates) + 1)))
    rate = max(plan.rates, key=lambda rate: search.judge(rate, trial))
    if budget is None:
        steps = search.enough_steps(rate, trial, plan.max_steps)
    else:
        steps = min(plan.max_steps, _each(budget - trial * len(plan.rates), config))
    return Suggestion(config.model_copy(update={"alpha": rate, "steps": steps}), search.tried)


def check_choice(preset: str | None, time_limit: float | None) -> None:
    """Refuse what `choose_recipe` cannot work with."""
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset {preset!r} is unknown; choose {', '.join(PRESETS)}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be more than 0 seconds, not {time_limit:g}")


def _each(budget: int, config: FinetuneConfig) -> int:
    return max(1, budget // config.seeds)


@dataclass
class _Search:
    """Tries recipes for one start and dataset."""

    start: Start
    dataset: Dataset
    config: FinetuneConfig
    on_trial: OnTrial
    tried: dict[tuple[float, int], float] = field(default_factory=dict)

    def enough_steps(self, rate: float, steps: int, most: int) -> int:
        """Double the steps while the held-out accuracy gains by it."""
        while steps < most:
            longer = min(2 * steps, most)
            gain = self.judge(rate, longer) - self.tried[rate, steps]
            if gain < GAIN:
                return longer if gain > 0 else steps
            steps = longer
        return steps

    def judge(self, rate: float, steps: int) -> float:
        tuner = self._tuner(alpha=rate, steps=steps, evaluate_every=steps)
        tuner.run()
        point = tuner.curve[-1]
        accuracy = point.accuracy if math.isfinite(point.loss) else 0.0  # a rate that diverged is no good
        self.tried[rate, steps] = accuracy
        self.on_trial(rate, steps, accuracy)
        return accuracy

    def step_seconds(self) -> float:
        tuner = self._tuner(steps=10**6, evaluate_every=10**6)
        tuner.run(1)  # the first one also pays for what is made once
        begun = time.perf_counter()
        tuner.run(1 + MEASURED_STEPS)
        tuner.state()  # waits for the device
        return (time.perf_counter() - begun) / MEASURED_STEPS

    def _tuner(self, **changes: float) -> Finetuner:
        dataset, config = self.dataset, self.config.model_copy(update=changes)
        kept, held_out = split_indices(len(dataset.train), HELD_OUT, 0, f"{dataset.name}/suggestion")
        module = self.start.build(dataset.num_classes, 0)
        parts = {"train_indices": kept, "test_indices": held_out}
        return Finetuner(module, dataset, config, seed=0, phi=self.start.phi, device=choose_device(), **parts)
