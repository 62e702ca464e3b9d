"""What a sweep searches: the typed sweep file, the trials drawn from it, and the config of each.

A trial is a few overrides of one base config, applied by the same path as the command line's. All trials take the same
number of inner steps: where K varies, the number of trajectories follows. Nothing here imports torch or ray.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from rayctsl.config import (
    Config,
    Count,
    Overrides,
    Positive,
    Section,
    ValidationConfig,
    apply_overrides,
    build_config,
    read_yaml,
)
from rayctsl.contract import Json, JsonObject
from rayctsl.words import explain

FILE = "sweep.yaml"  # the sweep in its run folder
SAMPLES_CHECKED = 32  # draws of an open-ended search that are tried as configs before anything starts


class Dimension(Section):
    """Where one config key is looked for: exactly one of the three."""

    grid: tuple[JsonValue, ...] | None = None
    """Every one of these values, crossed with the other grids."""
    choice: tuple[JsonValue, ...] | None = None
    """One of these values, drawn for each trial."""
    loguniform: tuple[Positive, Positive] | None = None
    """A number between two bounds, drawn evenly on a logarithmic scale."""

    @field_validator("grid", "choice", mode="before")
    @classmethod
    def _read_numbers(cls, values: object) -> object:
        return [_number(value) for value in values] if isinstance(values, list) else values

    @model_validator(mode="after")
    def _check(self) -> Dimension:
        given = [values for values in (self.grid, self.choice, self.loguniform) if values is not None]
        if len(given) != 1 or not given[0]:
            raise ValueError("give exactly one of grid, choice or loguniform, with values")
        if self.loguniform and self.loguniform[0] >= self.loguniform[1]:
            raise ValueError("loguniform takes a lower and a higher bound")
        return self

    @property
    def values(self) -> tuple[JsonValue, ...]:
        return self.grid or self.choice or ()

    def draw(self, source: random.Random) -> JsonValue:
        if self.loguniform:
            low, high = self.loguniform
            return math.exp(source.uniform(math.log(low), math.log(high)))
        return source.choice(self.values)


class Sweep(Section):
    """A sweep file, its base config read in."""

    base: JsonObject = Field(default_factory=dict)
    """The config that trials vary: its keys, or in a file the path of a config file."""
    search: dict[str, Dimension]
    """Config keys and where to look for their values."""
    trials: Count = 1
    """Draws for each point of the grid; with optuna the number of trials."""
    search_algorithm: Literal["random", "optuna"] = "random"
    """How values are drawn; optuna takes grids as choices."""
    scheduler: Literal["asha", "none"] = "none"
    """asha stops trials that fall behind at equal inner steps."""
    reduction_factor: Annotated[float, Field(gt=1)] = 3.0
    """asha lets about one in so many trials pass each of its marks."""
    budget: Count | None = None
    """Inner steps of every task in each trial; the base's K times M when absent."""
    report_every: Count | None = None
    """Inner steps between two validations, rounded up to whole trajectories of every K that is searched; a fifth of the
    budget when absent."""
    validation: ValidationConfig = ValidationConfig()
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the draws and of the held-out images."""
    max_failures: Annotated[int, Field(ge=0)] = 2
    """How often a trial whose processes died is taken up again from its snapshots."""

    @model_validator(mode="after")
    def _check(self) -> Sweep:
        dimensions = self.search.values()
        if not self.search:
            raise ValueError("search is empty: name at least one config key")
        if self.budget is not None and "trajectories" in self.search:
            raise ValueError("with a budget the trajectories follow from inner_steps: search inner_steps alone")
        if self.search_algorithm == "optuna" and not any(dimension.loguniform for dimension in dimensions):
            raise ValueError("optuna needs a loguniform dimension; use search_algorithm: random for lists alone")
        if self.search_algorithm == "random" and self.trials > 1 and all(dimension.grid for dimension in dimensions):
            raise ValueError(f"trials: {self.trials} would repeat the same grid; add a choice or loguniform dimension")
        return self

    @property
    def steps_per_trial(self) -> int:
        """Inner steps of every task: the budget."""
        base = build_config(self.base)
        return self.budget or base.inner_steps * base.trajectories

    @property
    def inner_steps_tried(self) -> list[int]:
        """Every K that a trial may have."""
        searched = self.search.get("inner_steps")
        each: list[Overrides] = [{"inner_steps": value} for value in searched.values] if searched else [{}]
        return sorted({build_config(apply_overrides(self.base, overrides)).inner_steps for overrides in each})

    @property
    def steps_per_report(self) -> int:
        """The same for all trials, so that they are compared at equal steps: whole trajectories of every K.

        Where trials are too short for that it is what was asked for, and each rounds it up to its own K.
        """
        asked, common = self.report_every or max(1, self.steps_per_trial // 5), math.lcm(*self.inner_steps_tried)
        return common * -(-asked // common) if common <= self.steps_per_trial else asked


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file; a base given by path is looked for beside it."""
    raw = read_yaml(path)
    if isinstance(raw.get("base"), str):
        raw = {**raw, "base": read_yaml(Path(path).parent / raw["base"])}
    return build_sweep(raw)


def build_sweep(raw: Mapping[str, object]) -> Sweep:
    """Validate a plain dict and the config of every trial; ValueError with one sentence for what is wrong."""
    try:
        sweep = Sweep.model_validate(dict(raw))
    except ValidationError as error:
        raise ValueError(explain(error, Sweep, "sweep")) from None
    for overrides in draw_trials(sweep):
        trial_config(sweep, overrides)
    _check_marks(sweep)
    return sweep


def _check_marks(sweep: Sweep) -> None:
    """Refuse a scheduler that would compare trials at unequal inner steps."""
    tried = sweep.inner_steps_tried
    common, longest = math.lcm(*tried), sweep.steps_per_trial
    if sweep.scheduler == "asha" and common > longest:
        raise ValueError(
            f"asha compares trials at equal inner steps, but trajectories of inner_steps {', '.join(map(str, tried))} "
            f"end together after {common} at the earliest, beyond the {longest} of a trial: search other inner_steps, "
            "or take scheduler: none"
        )


def dump_sweep(sweep: Sweep) -> str:
    """The sweep as YAML that `load_sweep` reads again."""
    return yaml.safe_dump(sweep.model_dump(mode="json", exclude_none=True), sort_keys=False, width=110)


def draw_trials(sweep: Sweep) -> list[Overrides]:
    """The overrides of every trial, a function of the sweep alone; for optuna, samples of what it may suggest."""
    open_ended = sweep.search_algorithm == "optuna"
    grids = {key: dimension.grid for key, dimension in sweep.search.items() if dimension.grid and not open_ended}
    drawn = {key: dimension for key, dimension in sweep.search.items() if key not in grids}
    source = random.Random(sweep.seed)
    trials: dict[str, Overrides] = {}
    for _ in range(SAMPLES_CHECKED if open_ended else sweep.trials):
        for point in itertools.product(*grids.values()):
            overrides: dict[str, Json] = dict(zip(grids, point, strict=True))
            overrides.update({key: dimension.draw(source) for key, dimension in drawn.items()})
            trials.setdefault(_fingerprint(overrides), overrides)  # lists may be drawn from twice
    return list(trials.values())


def trial_config(sweep: Sweep, overrides: Overrides) -> Config:
    """The ordinary config of one trial, of the sweep's budget."""
    raw = apply_overrides(sweep.base, overrides)
    config = build_config(raw)
    if "trajectories" in overrides:
        return config
    budget = sweep.steps_per_trial
    if budget % config.inner_steps:
        raise ValueError(f"a budget of {budget} inner steps is not a multiple of inner_steps {config.inner_steps}")
    return build_config({**raw, "trajectories": budget // config.inner_steps})


def trial_id(config: Config, overrides: Overrides) -> str:
    """A name that says what is tried and is the same after every restart. Example: shifting-k10-beta0.1-5f0c2a"""
    method = config.method
    return f"{method.name}-k{config.inner_steps}-beta{method.beta:.3g}-{_fingerprint(overrides)}"


def _fingerprint(overrides: Overrides) -> str:
    return hashlib.sha256(json.dumps(dict(overrides), sort_keys=True).encode()).hexdigest()[:6]


def _number(value: object) -> object:
    """YAML takes 1e-3 without a point for a word."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    return value
