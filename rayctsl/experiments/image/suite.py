"""A suite: which datasets, methods and step sizes an image experiment compares, and with how much of everything.

Suites are YAML files, `configs/suites/NAME.yaml` or one of your own. Nothing here imports torch or ray.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from rayctsl.config import (
    METHOD_CONFIGS,
    Config,
    Count,
    MethodConfig,
    Section,
    ValidationConfig,
    apply_overrides,
    build_config,
    read_yaml,
    shipped_configs,
)
from rayctsl.contract import JsonObject
from rayctsl.experiments.image.records import Candidate
from rayctsl.words import explain, suggest

FOLDER = shipped_configs() / "suites"


class TuneConfig(Section):
    """The search for step sizes, the same for every method, on the meta-training tasks alone."""

    trajectories: Count | None = None
    """Length of each trial in trajectories; that of the whole training when absent."""
    seed: Annotated[int, Field(ge=0)] = 100
    """Of the trials, and of the images that validation keeps; apart from the seeds that are compared."""
    seeds: Count = 1
    """Trials of every candidate, each with a seed of its own; their mean decides."""
    validation: ValidationConfig = ValidationConfig()
    """The fine-tuning that scores a trial, on images of the meta-training tasks that the trial did not see."""


class WarmStart(Section):
    """A warm start: another method trains first, and the phi that it leaves is where the row begins."""

    method: str = "single"
    settings: Candidate = Field(default_factory=dict)
    """Its config keys. Example: {source: cifar10, alpha: 0.02, beta: 0.02}"""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Of the row's inner steps; it has the rest for itself."""


class LengthsConfig(Section):
    """Accuracy against K: more trainings, with as many inner steps in all."""

    inner_steps: tuple[Count, ...] = ()
    """The values of K besides the base's. beta follows K as in the paper's table, from the value that was chosen."""
    methods: tuple[str, ...] = ("shifting", "reptile", "leap", "fomaml")
    seeds: Count = 2
    """Training seeds."""


class Suite(Section):
    base: JsonObject
    """The run config that all methods share: model, data.tasks (the sources), K, M, and finetune, the test recipe."""
    targets: tuple[str, ...] = Field(min_length=1)
    """The datasets to meta-test on."""
    methods: dict[str, JsonObject]
    """Method -> config keys: a value, or a list to search; `alpha, beta` sets both keys to each value of its list.
    A method may stand here several times with names of its own after a plus. Example: shifting+pull: {pull: 0.01}"""
    ablations: dict[str, str] = Field(default_factory=dict)
    """Method -> the method whose step sizes it takes over, to differ from it in one thing only."""
    starts: dict[str, WarmStart] = Field(default_factory=dict)
    """Row of `methods` -> what trains before it. Example: shifting+warm: {settings: {source: cifar10}}"""
    tune: TuneConfig = TuneConfig()
    seeds: Count = 5
    """Training seeds, for mean and interval."""
    checkpoints: tuple[Count, ...] = ()
    """Trajectories after which phi is kept and tested too, besides the last."""
    checkpoint_seeds: Count = 5
    """Training seeds whose checkpoints are tested."""
    sizes: tuple[Count, ...] = ()
    """More sizes of the target's training set at which the final phi is tested."""
    steps: tuple[Count, ...] = ()
    """More lengths of fine-tuning at which the final phi is tested."""
    lengths: LengthsConfig = LengthsConfig()
    gpus: Annotated[float, Field(ge=0)] = 0.0
    """GPUs for each cell; 0 computes on one CPU core."""
    import_from: str | None = None
    """Where the datasets can be imported from, for the message when one is missing; {name} stands for its name."""

    @model_validator(mode="after")
    def _check(self) -> Suite:
        config = build_config(self.base)
        if both := set(config.data.tasks) & set(self.targets):
            raise ValueError(f"{sorted(both)[0]!r} is both a source and a target")
        if any(at >= config.trajectories for at in self.checkpoints):
            raise ValueError(f"checkpoints must lie before the last trajectory, {config.trajectories}")
        if unknown := sorted(set(self.starts) - set(self.methods)):
            raise ValueError(f"starts: there is no method {unknown[0]!r}{suggest(unknown[0], self.methods)}")
        named = (*self.methods, *self.lengths.methods, *self.ablations, *self.ablations.values())
        for name in (*named, *(start.method for start in self.starts.values())):
            if base_method(name) not in METHOD_CONFIGS:
                raise ValueError(f"method {base_method(name)!r} is unknown{suggest(base_method(name), METHOD_CONFIGS)}")
        for length in self.lengths.inner_steps:
            if self.total_steps % length:
                raise ValueError(f"lengths: {self.total_steps} inner steps are not a multiple of K = {length}")
        counts = {name: len(self.candidates(name)) for name in self.methods if self.searched(name)}
        if len(set(counts.values())) > 1:
            fewest, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            raise ValueError(
                f"every method needs a search of the same size: {fewest} has {counts[fewest]} candidates, "
                f"{most} {counts[most]}"
            )
        for name in self.methods:
            for candidate in self.candidates(name):
                self.config(name, candidate)
            self.start_config(name, trajectories=self.tune.trajectories)
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        return build_config(self.base).data.tasks

    @property
    def total_steps(self) -> int:
        """Inner steps of every task in every training."""
        config = build_config(self.base)
        return config.inner_steps * config.trajectories

    @property
    def inner_steps(self) -> int:
        return build_config(self.base).inner_steps

    def searched(self, method: str) -> bool:
        """Whether a method's step sizes are looked for."""
        return kind_of(method).trains and method not in self.ablations

    def candidates(self, method: str) -> list[Candidate]:
        """The overrides that a method's search tries. Example: [{"beta": 0.03}, {"beta": 0.1}]"""
        given = self.methods[self.ablations.get(method, method)]
        settings = {key: value if isinstance(value, list) else [value] for key, value in given.items()}
        chosen = []
        for values in itertools.product(*settings.values()):
            pairs = zip(settings, values, strict=True)
            chosen.append({part.strip(): value for keys, value in pairs for part in keys.split(",")})
        return chosen

    def config(
        self,
        method: str,
        candidate: Candidate,
        *,
        inner_steps: int | None = None,
        trajectories: int | None = None,
        seed: int = 0,
        root: str | None = None,
    ) -> Config:
        """The run config of one training: as many inner steps in all, over all tasks, whatever the method and K.

        Args:
            trajectories: of the base's K, for a shorter run.
        """
        whole = trajectories or build_config(self.base).trajectories
        return self._config(method, candidate, whole - self._before(method, whole), inner_steps, seed, root)

    def start_config(
        self,
        method: str,
        *,
        inner_steps: int | None = None,
        trajectories: int | None = None,
        seed: int = 0,
        root: str | None = None,
    ) -> Config | None:
        """The run config of what trains before a method; with it the method takes as many steps as others."""
        if method not in self.starts:
            return None
        start, whole = self.starts[method], trajectories or build_config(self.base).trajectories
        before = self._before(method, whole)
        if not 0 < before < whole:
            raise ValueError(
                f"starts: a share of {start.share:g} leaves {method} or its start no trajectory of {whole}"
            )
        return self._config(start.method, start.settings, before, inner_steps, seed, root)

    def _before(self, method: str, trajectories: int) -> int:
        """How many of a row's trajectories its warm start takes."""
        return round(self.starts[method].share * trajectories) if method in self.starts else 0

    def _config(
        self,
        method: str,
        candidate: Candidate,
        trajectories: int,
        inner_steps: int | None,
        seed: int,
        root: str | None,
    ) -> Config:
        base = build_config(self.base)
        length, total = inner_steps or base.inner_steps, base.inner_steps * trajectories
        if kind_of(method).one_task:  # to spend on it what the others spend on all
            total *= len(base.data.tasks)
        overrides = {
            "method.name": base_method(method),
            **candidate,
            "inner_steps": length,
            "trajectories": total // length,
        }
        overrides |= {
            "seed": seed,
            "data.root": root or base.data.root,
            "tensorboard": False,
            "snapshot_every": self._spacing(method),
        }
        config = build_config(apply_overrides(self.base, overrides))
        if length != base.inner_steps:
            scaled = scale_beta(config, base.inner_steps)
            config = build_config(apply_overrides(config.model_dump(mode="json"), {"method.beta": scaled}))
        return config

    def checkpoint_steps(self, method: str) -> list[int]:
        """Where along a training phi is kept, in inner steps of each of its tasks."""
        kind, before = kind_of(method), self._before(method, build_config(self.base).trajectories)
        factor = len(self.sources) if kind.one_task else 1
        kept = [at - before for at in self.checkpoints if at > before]
        return [at * self.inner_steps * factor for at in kept] if kind.trains else []

    def _spacing(self, method: str) -> int:
        """Runs pause at snapshots, so every checkpoint must be one."""
        return math.gcd(*self.checkpoint_steps(method)) or self.total_steps

    def only(self, methods: tuple[str, ...]) -> Suite:
        """The same suite with these methods alone."""
        methods = (*methods, *(self.ablations[name] for name in methods if name in self.ablations))
        kept = {name: settings for name, settings in self.methods.items() if name in methods}
        lengths = tuple(name for name in self.lengths.methods if name in kept)
        return self.model_copy(
            update={"methods": kept, "lengths": self.lengths.model_copy(update={"methods": lengths})}
        )


def base_method(name: str) -> str:
    """The method of a suite's row. Example: shifting+pull is a shifting"""
    return name.partition("+")[0]


def kind_of(name: str) -> type[MethodConfig]:
    return METHOD_CONFIGS[base_method(name)]


def scale_beta(config: Config, tuned_for: int) -> float:
    """beta for the config's K: the value chosen for another K, times the ratio of the paper's values for the two."""
    kind, beta = METHOD_CONFIGS[config.method.name], config.method.beta
    assert beta is not None
    return float(f"{beta * kind.paper_beta(config.inner_steps) / kind.paper_beta(tuned_for):.6g}")


def suite_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_suite(name: str, seeds: int | None = None) -> Suite:
    """Read a suite by name or from a YAML file; ValueError with one sentence for the first thing that is wrong."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = suggest(name, suite_names()) if path.parent == FOLDER else ""
        raise ValueError(f"there is no suite {name!r}{known}")
    raw = read_yaml(path)
    if seeds is not None:
        raw["seeds"] = seeds
    try:
        return Suite.model_validate(raw)
    except ValidationError as error:
        raise ValueError(f"suite {name}: {explain(error, Suite, 'suite')}") from None
