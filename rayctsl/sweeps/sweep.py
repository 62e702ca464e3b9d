"""`run_sweep`: Tune runs the trials of a sweep side by side, each in a placement group of its own.

What is finished is known from the trials' own records, so a sweep that was killed goes on with the rest; a scheduler or
search algorithm is told first what the finished trials reported.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ray
from pyarrow import fs
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.util.placement_group import placement_group, remove_placement_group

from rayctsl.cluster.resources import sum_bundles
from rayctsl.learning.lease import Lease
from rayctsl.storage import Storage
from rayctsl.sweeps.config import FILE, Sweep, draw_trials, dump_sweep, trial_config, trial_id
from rayctsl.sweeps.trial import METRIC, TIME, TrialRecord, read_record, read_records, run_trial, trial_bundles

PARAMETERS = "overrides"  # the one entry of Tune's config: a trial's overrides
FLAT = f"{PARAMETERS}/"  # as search algorithms spell the keys below it


def run_sweep(sweep: Sweep, run: Storage) -> dict[str, TrialRecord]:
    """Run what is left of a sweep in its run folder; returns all trials' records, by id."""
    records = read_records(run)
    if sweep.search_algorithm == "optuna":
        waiting = [record.overrides for record in records.values() if not record.done]
        left = sweep.trials - sum(record.done for record in records.values())
    else:
        every = draw_trials(sweep)
        waiting = [o for o in every if (known := records.get(name_of(sweep, o))) is None or not known.done]
        left = len(waiting)
    if left > 0:
        check_room(sweep, waiting or draw_trials(sweep))
        if not run.exists(FILE):
            run.write(FILE, dump_sweep(sweep).encode())
        say(f"{left} trials to run" + (f", {len(records)} begun earlier" if records else ""))
        if run.local and sum(node["Alive"] for node in ray.nodes()) > 1:
            say(f"note: this cluster has several nodes; {run} must be on a disk that all of them share")
        with Lease(run.inside("lease"), f"the sweep in {run}"):
            build_tuner(sweep, run, waiting, left, records.values()).fit()
        records = read_records(run)
        if sum(record.done or record.status == "lost" for record in records.values()) < _expected(sweep):
            say(f"stopped; continue with: python -m rayctsl.tune --resume {run}")
            raise KeyboardInterrupt  # Tune has made it a clean stop
    return records


def _expected(sweep: Sweep) -> int:
    return sweep.trials if sweep.search_algorithm == "optuna" else len(draw_trials(sweep))


def name_of(sweep: Sweep, overrides: Mapping[str, Any]) -> str:
    return trial_id(trial_config(sweep, overrides), overrides)


def build_tuner(
    sweep: Sweep, run: Storage, waiting: list[dict[str, Any]], left: int, known: Iterable[TrialRecord]
) -> tune.Tuner:
    """Tune over `waiting` (random search), or over `left` suggestions that start with `waiting` (optuna)."""
    # A trial's folders are given in full; staying where it is keeps relative data roots meaningful.
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # its banner ignores `verbose`; the Bookkeeper says how it goes
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what befalls trials is in their records
    run_dir, done = str(run), [record for record in known if record.done]

    def trial(config: dict[str, Any]) -> None:
        run_trial(sweep, run_dir, config[PARAMETERS])

    def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory(trial_bundles(trial_config(sweep, config[PARAMETERS]), sweep))

    def name(trial: Any) -> str:
        return name_of(sweep, trial.config[PARAMETERS])

    space: dict[str, Any] | None
    space, search, samples = {PARAMETERS: tune.grid_search(waiting)}, None, 1
    if sweep.search_algorithm == "optuna":
        space, search, samples = None, build_optuna(sweep, waiting, done), left
    filesystem, root = (None, run.root) if run.local else fs.FileSystem.from_uri(run.base)
    return tune.Tuner(
        tune.with_resources(trial, resources),
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=search,
            scheduler=build_scheduler(sweep, done),
            num_samples=samples,
            trial_name_creator=name,
            trial_dirname_creator=name,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=root,
            storage_filesystem=filesystem,
            failure_config=tune.FailureConfig(max_failures=sweep.max_failures),
            callbacks=[Bookkeeper(run_dir, left)],
            verbose=0,
        ),
    )


def build_scheduler(sweep: Sweep, done: Iterable[TrialRecord]) -> ASHAScheduler | None:
    """ASHA over inner steps, told of the trials that are done already; None runs every trial to its end."""
    if sweep.scheduler == "none":
        return None
    scheduler = ASHAScheduler(
        time_attr=TIME,
        metric=METRIC,
        mode="max",
        max_t=max(sweep.steps_per_trial, sweep.steps_per_report),
        grace_period=sweep.steps_per_report,
        reduction_factor=sweep.reduction_factor,
        stop_last_trials=False,  # a trial ends by itself, after it has saved its initialization
    )
    for record in done:
        stand_in: Any = SimpleNamespace(trial_id=record.id)
        scheduler.on_trial_add(None, stand_in)
        for report in record.reports:
            scheduler.on_trial_result(None, stand_in, report)
    return scheduler


def build_optuna(sweep: Sweep, waiting: list[dict[str, Any]], done: Sequence[TrialRecord]) -> Any:
    """Optuna's sampler, told of the trials that are done already; interrupted ones are suggested first."""
    try:
        import optuna
    except ImportError:
        raise ValueError("search_algorithm: optuna needs the package: pip install 'rayctsl[optuna]'") from None
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {
        key: tune.loguniform(*dimension.loguniform) if dimension.loguniform else tune.choice(list(dimension.values))
        for key, dimension in sweep.search.items()
    }
    search = OptunaSearch(
        OptunaSearch.convert_search_space({PARAMETERS: space}),
        metric=METRIC,
        mode="max",
        seed=sweep.seed + len(done),  # a sampler that begins again would suggest what has been tried
        points_to_evaluate=[_flat(overrides) for overrides in waiting],
    )
    for record in done:
        search.add_evaluated_point(_flat(record.overrides), 0.0 if record.status == "failed" else record.last(METRIC))
    return search


def _flat(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{FLAT}{key}": value for key, value in overrides.items()}


class Bookkeeper(tune.Callback):
    """Notes in the trials' records what only Tune knows, and says how the sweep goes on."""

    def __init__(self, run_dir: str, total: int):
        self.run_dir, self.total, self.ended = run_dir, total, 0

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        if not result.get("done"):
            say(f"{trial}: inner step {result[TIME]}, validation accuracy {result[METRIC]:.1f} %")

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._end(trial, "stopped", "behind other trials at equal inner steps")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        lines = [line for line in str(trial.get_error() or "").strip().splitlines() if line.strip()]
        self._end(trial, "lost", lines[-1].strip() if lines else "its processes died")

    def _end(self, trial: Any, status: str, reason: str) -> None:
        run = Storage(self.run_dir)
        record = read_record(run, str(trial)) or TrialRecord(str(trial), trial.config[PARAMETERS])
        if not record.done:
            record.close(run, status, reason)
        self.ended += 1
        say(
            f"[{self.ended}/{self.total}] {record.id}: {record.status}"
            + (f", {record.reason}" if record.reason else "")
        )


def check_room(sweep: Sweep, trials: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a cluster that cannot hold one trial: Tune would wait for ever."""
    kinds = {}
    for overrides in trials:
        config = trial_config(sweep, overrides)
        bundles = [bundle for bundle in trial_bundles(config, sweep) if any(bundle.values())]
        kinds[str(bundles)] = bundles, config.topology.wait_seconds
    for bundles, wait_seconds in kinds.values():
        missing = shortfall(bundles, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        if missing and not (wait_seconds and _becomes_ready(bundles, wait_seconds)):
            total, asked = ray.cluster_resources(), sum_bundles(bundles)
            parts = [
                f"{asked[name]:g} {name} asked for, {total.get(name, 0):g} in the cluster, {amount:g} missing"
                for name, amount in missing.items()
            ]
            raise ValueError(f"the cluster is too small for one trial of the sweep: {'; '.join(parts)}")


def shortfall(bundles: list[dict[str, float]], nodes: list[dict[str, float]]) -> dict[str, float]:
    """What is missing to place all bundles, largest first, each on one node; empty when they fit."""
    free, homeless = [dict(node) for node in nodes], list[dict[str, float]]()
    for bundle in sorted(bundles, key=lambda bundle: sorted(bundle.items()), reverse=True):
        fitting = (n for n in free if all(n.get(name, 0) + 1e-6 >= amount for name, amount in bundle.items()))
        node = next(fitting, None)
        if node is None:
            homeless.append(bundle)
            continue
        for name, amount in bundle.items():
            node[name] -= amount
    return sum_bundles(homeless)


def _becomes_ready(bundles: list[dict[str, float]], seconds: float) -> bool:
    """Ask for the room and wait: that is what makes a cluster grow."""
    group = placement_group(bundles)
    try:
        return bool(group.wait(timeout_seconds=seconds))
    finally:
        remove_placement_group(group)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
