"""Ray Tune as sweeps use it: trials side by side, each in a placement group of its own, watched and reported.

A trial is a few overrides, by which it is named and started; what it computes, Tune does not know.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

import ray
from pyarrow import fs
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.util import get_current_placement_group

from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.resources import bundles_of
from rayctsl.config import Overrides, TopologyConfig
from rayctsl.contract import Json
from rayctsl.device import choose_device
from rayctsl.learning.engine import Engine, LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.signals import handlers_kept
from rayctsl.storage import Storage

PARAMETERS = "overrides"  # the one entry of Tune's config: a trial's overrides
FLAT = f"{PARAMETERS}/"  # as search algorithms spell the keys below it
TuneConfig = Mapping[str, Overrides]
Scheduler, Search = ASHAScheduler, Searcher
Report = Mapping[str, float]


class Watcher(Protocol):
    """Is told of what only Tune knows."""

    def reported(self, name: str, report: Report) -> None: ...
    def ended(self, name: str, overrides: Overrides, error: str | None) -> None: ...


@dataclass(frozen=True)
class Trials:
    """What to run: `run`, `name` and `bundles` take a trial's overrides."""

    run: Callable[[Overrides], None]
    name: Callable[[Overrides], str]
    bundles: Callable[[Overrides], list[dict[str, float]]]
    waiting: Sequence[Overrides]


def run_trials(
    trials: Trials,
    run: Storage,
    watcher: Watcher,
    *,
    max_failures: int,
    scheduler: ASHAScheduler | None = None,
    search: Searcher | None = None,
    samples: int = 1,
) -> None:
    """Run `waiting`, or with a search algorithm `samples` of its suggestions, which start with `waiting`."""
    # A trial's folders are given in full; staying where it is keeps relative data roots meaningful.
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # its banner ignores `verbose`; the watcher says how it goes
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what befalls trials is in their records

    def start(config: TuneConfig) -> None:
        trials.run(config[PARAMETERS])

    def resources(config: TuneConfig) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory(trials.bundles(config[PARAMETERS]))

    def name(trial: Trial) -> str:
        return trials.name(trial.config[PARAMETERS])

    filesystem, root = (None, run.root) if run.local else fs.FileSystem.from_uri(run.base)
    tuner = tune.Tuner(
        tune.with_resources(start, resources),
        param_space=None if search else {PARAMETERS: tune.grid_search(list(trials.waiting))},
        tune_config=tune.TuneConfig(
            search_alg=search,
            scheduler=scheduler,
            num_samples=samples,
            trial_name_creator=name,
            trial_dirname_creator=name,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=root,
            storage_filesystem=filesystem,
            failure_config=tune.FailureConfig(max_failures=max_failures),
            callbacks=[_Callback(watcher)],
            verbose=0,
        ),
    )
    # Tune takes Ctrl-C as a wish to end the trials, and would still do so when there are none.
    with handlers_kept(signal.SIGINT, signal.SIGUSR1):
        tuner.fit()


class _Callback(tune.Callback):
    def __init__(self, watcher: Watcher):
        self.watcher = watcher

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        if not result.get("done"):
            self.watcher.reported(str(trial), result)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: object) -> None:
        self.watcher.ended(str(trial), trial.config[PARAMETERS], None)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: object) -> None:
        lines = [line for line in str(trial.get_error() or "").strip().splitlines() if line.strip()]
        self.watcher.ended(str(trial), trial.config[PARAMETERS], lines[-1].strip() if lines else "its processes died")


def build_asha(
    metric: str, time: str, *, longest: int, first: int, factor: float, done: Mapping[str, Iterable[Report]]
) -> ASHAScheduler:
    """ASHA over inner steps, told of the reports of trials that are done already.

    Args:
        longest: steps of a whole trial.
        first: steps after which trials are compared for the first time.
        factor: about one in so many trials passes each mark.
    """
    scheduler = ASHAScheduler(
        time_attr=time,
        metric=metric,
        mode="max",
        max_t=max(longest, first),
        grace_period=first,
        reduction_factor=factor,
        stop_last_trials=False,  # a trial ends by itself, after it has saved its initialization
    )
    for name, reports in done.items():
        stand_in = SimpleNamespace(trial_id=name)
        scheduler.on_trial_add(None, stand_in)
        for known in reports:
            scheduler.on_trial_result(None, stand_in, known)
    return scheduler


def build_optuna(
    metric: str,
    ranges: Mapping[str, tuple[float, float]],
    choices: Mapping[str, Sequence[Json]],
    *,
    seed: int,
    waiting: Iterable[Overrides],
    done: Iterable[tuple[Overrides, float | None]],
) -> Searcher:
    """Optuna's sampler, told of the trials that are done already; interrupted ones are suggested first.

    It suggests nothing twice: a sampler that begins again may draw what it drew before it was interrupted.
    """
    try:
        import optuna
    except ImportError:
        raise ValueError("search_algorithm: optuna needs the package: pip install 'rayctsl[optuna]'") from None
    from ray.tune.search.optuna import OptunaSearch

    class DistinctSearch(OptunaSearch):
        def suggest(self, trial_id: str) -> TuneConfig:
            while True:
                suggestion, drawn = super().suggest(trial_id), self._ot_trials[trial_id]
                others = (each for each in self._ot_study.trials if each.number != drawn.number)
                if all(each.params != drawn.params for each in others):
                    return suggestion
                del self._ot_trials[trial_id]
                self._ot_study.tell(drawn, state=optuna.trial.TrialState.FAIL)  # which the sampler learns nothing from

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {key: tune.loguniform(*bounds) for key, bounds in ranges.items()}
    space |= {key: tune.choice(list(values)) for key, values in choices.items()}
    search = DistinctSearch(
        OptunaSearch.convert_search_space({PARAMETERS: space}),
        metric=metric,
        mode="max",
        seed=seed,
        points_to_evaluate=[_flat(overrides) for overrides in waiting],
    )
    for overrides, score in done:
        search.add_evaluated_point(_flat(overrides), score)
    return search


def _flat(overrides: Overrides) -> dict[str, Json]:
    return {f"{FLAT}{key}": value for key, value in overrides.items()}


def report(values: Report) -> None:
    """Inside a trial: tell Tune, which may end the process in answer."""
    tune.report(dict(values))


def trial_engine(problem: Problem, num_learners: int) -> Engine:
    """Inside a trial: one learner is this very process; several are in the placement group that Tune made for it."""
    if num_learners == 1:
        return LocalEngine(problem, choose_device(granted=bool(ray.get_gpu_ids())))
    placement = get_current_placement_group()
    assert placement is not None, "a trial runs inside a placement group"
    engine_bundles = bundles_of(problem.config.topology, num_learners)
    return RayEngine(problem, placement, placement.bundle_count - len(engine_bundles))  # Tune leaves out empty ones


def trial_bundles(topology: TopologyConfig, num_learners: int) -> list[dict[str, float]]:
    """What a trial reserves: one bundle where it is its own learner, else one for its process, then its engine's."""
    bundles = bundles_of(topology, num_learners)
    return bundles[:1] if num_learners == 1 else [{"CPU": 0}, *bundles]
