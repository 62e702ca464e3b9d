"""`run_sweep`: the trials of a sweep side by side.

What is finished is known from the trials' own records, so a sweep that was killed goes on with the rest; a scheduler or
search algorithm is told first what the finished trials reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rayctsl.cluster.room import check_room, num_nodes
from rayctsl.cluster.trials import Scheduler, Search, Trials, build_asha, build_optuna, run_trials, trial_bundles
from rayctsl.config import Config, Overrides
from rayctsl.learning.lease import Lease
from rayctsl.learning.surroundings import settled
from rayctsl.progress import say
from rayctsl.storage import Storage
from rayctsl.sweeps.config import FILE, Sweep, draw_trials, dump_sweep, trial_config, trial_id
from rayctsl.sweeps.records import METRIC, TIME, TrialRecord, read_record, read_records
from rayctsl.sweeps.trial import num_learners, run_trial


def run_sweep(sweep: Sweep, run: Storage) -> dict[str, TrialRecord]:
    """Run what is left of a sweep in its run folder; returns all trials' records, by id."""
    records = read_records(run)
    waiting, left = what_is_left(sweep, records)
    if left > 0:
        check_rooms(sweep, waiting or draw_trials(sweep))
        if not run.exists(FILE):
            run.write(FILE, dump_sweep(sweep).encode())
        say(how_it_stands(left, records))
        if run.local and num_nodes() > 1:
            say(f"note: this cluster has several nodes; {run} must be on a disk that all of them share")
        with Lease(run.inside("lease"), f"the sweep in {run}"):
            start(sweep, run, waiting, left, records.values())
        records = read_records(run)
        if sum(record.done or record.status == "lost" for record in records.values()) < _expected(sweep):
            say(f"stopped; continue with: python -m rayctsl.tune --resume {run}")
            raise KeyboardInterrupt  # Tune has made it a clean stop
    return records


def with_settled_data(sweep: Sweep) -> Sweep:
    """The sweep whose base names its data so that trials on every node find the same."""
    kinds = {config.data.tasks: config for config in (trial_config(sweep, each) for each in draw_trials(sweep))}
    found = [settled(config).data for config in kinds.values()]
    checksums = {name: checksum for data in found for name, checksum in data.checksums.items()}
    data = {**sweep.base.get("data", {}), "root": found[0].root, "checksums": checksums}
    return sweep.model_copy(update={"base": {**sweep.base, "data": data}})


def what_is_left(sweep: Sweep, records: Mapping[str, TrialRecord]) -> tuple[list[Overrides], int]:
    """The overrides that wait to be run (again), and the number of trials to run; optuna draws the others later."""
    if sweep.search_algorithm == "optuna":
        waiting: list[Overrides] = [record.overrides for record in records.values() if not record.done]
        return waiting, sweep.trials - sum(record.done for record in records.values())
    every = draw_trials(sweep)
    waiting = [o for o in every if (known := records.get(name_of(sweep, o))) is None or not known.done]
    return waiting, len(waiting)


def how_it_stands(left: int, records: Mapping[str, TrialRecord]) -> str:
    """Example: "3 trials to run, 1 of them begun earlier; 2 are done" """
    done = sum(record.done for record in records.values())
    begun = len(records) - done
    text = f"{left} trials to run" + (f", {begun} of them begun earlier" if begun else "")
    return text + (f"; {done} are done" if done else "")


def start(sweep: Sweep, run: Storage, waiting: list[Overrides], left: int, known: Iterable[TrialRecord]) -> None:
    """Tune over `waiting` (random search), or over `left` suggestions that start with `waiting` (optuna)."""
    run_dir, done = str(run), [record for record in known if record.done]
    trials = Trials(
        run=lambda overrides: run_trial(sweep, run_dir, overrides),
        name=lambda overrides: name_of(sweep, overrides),
        bundles=lambda overrides: bundles_for(trial_config(sweep, overrides)),
        waiting=waiting,
    )
    search = optuna_for(sweep, waiting, done) if sweep.search_algorithm == "optuna" else None
    run_trials(
        trials,
        run,
        Bookkeeper(run_dir, left),
        max_failures=sweep.max_failures,
        scheduler=scheduler_for(sweep, done),
        search=search,
        samples=left if search else 1,
    )


def scheduler_for(sweep: Sweep, done: Iterable[TrialRecord]) -> Scheduler | None:
    """The sweep's scheduler; None runs every trial to its end."""
    if sweep.scheduler == "none":
        return None
    return build_asha(
        METRIC,
        TIME,
        longest=sweep.steps_per_trial,
        first=sweep.steps_per_report,
        factor=sweep.reduction_factor,
        done={record.id: record.reports for record in done},
    )


def optuna_for(sweep: Sweep, waiting: list[Overrides], done: Sequence[TrialRecord]) -> Search:
    dimensions = sweep.search.items()
    return build_optuna(
        METRIC,
        ranges={key: dimension.loguniform for key, dimension in dimensions if dimension.loguniform},
        choices={key: dimension.values for key, dimension in dimensions if not dimension.loguniform},
        seed=sweep.seed + len(done),  # a sampler that begins again would keep close to what has been tried
        waiting=waiting,
        done=[(record.overrides, 0.0 if record.status == "failed" else record.last(METRIC)) for record in done],
    )


class Bookkeeper:
    """Notes in the trials' records what only Tune knows, and says how the sweep goes on."""

    def __init__(self, run_dir: str, total: int):
        self.run_dir, self.total, self.num_ended = run_dir, total, 0

    def reported(self, name: str, report: Mapping[str, float]) -> None:
        say(f"{name}: inner step {report[TIME]}, validation accuracy {report[METRIC]:.1f} %")

    def ended(self, name: str, overrides: Overrides, error: str | None) -> None:
        run = Storage(self.run_dir)
        record = read_record(run, name) or TrialRecord(id=name, overrides=dict(overrides))
        if not record.done:
            behind = "behind other trials at equal inner steps"
            record = record.closed("lost", error).save(run) if error else record.closed("stopped", behind).save(run)
        self.num_ended += 1
        why = f", {record.reason}" if record.reason else ""
        say(f"[{self.num_ended}/{self.total}] {record.id}: {record.status}{why}")


def check_rooms(sweep: Sweep, trials: Iterable[Overrides]) -> None:
    """Refuse a cluster that cannot hold one trial."""
    kinds = {}
    for overrides in trials:
        config = trial_config(sweep, overrides)
        bundles = bundles_for(config)
        kinds[str(bundles)] = bundles, config.topology.wait_seconds
    for bundles, wait_seconds in kinds.values():
        check_room(bundles, "one trial of the sweep", wait_seconds)


def bundles_for(config: Config) -> list[dict[str, float]]:
    return trial_bundles(config.topology, num_learners(config))


def _expected(sweep: Sweep) -> int:
    return sweep.trials if sweep.search_algorithm == "optuna" else len(draw_trials(sweep))


def name_of(sweep: Sweep, overrides: Overrides) -> str:
    return trial_id(trial_config(sweep, overrides), overrides)
