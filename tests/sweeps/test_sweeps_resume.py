"""A sweep without its cluster: what it asks for, what it knows of trials that are done, what is left to run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.storage import Storage
from rayctsl.sweeps import sweep as sweep_module
from rayctsl.sweeps.config import Sweep, build_sweep, draw_trials, trial_config
from rayctsl.sweeps.records import METRIC, TIME, Status, TrialRecord, read_records
from rayctsl.sweeps.sweep import (
    Bookkeeper,
    check_rooms,
    how_it_stands,
    name_of,
    optuna_for,
    scheduler_for,
    start,
    what_is_left,
)
from rayctsl.sweeps.trial import Trial
from tests.sweeps.conftest import sweep_keys


def sweep_of(**more: Any) -> Sweep:
    return build_sweep(sweep_keys(search={"beta": {"grid": [1, 2]}}, **more))


def record(name: str, accuracy: float, status: Status = "finished", at: int = 4) -> TrialRecord:
    return TrialRecord(id=name, overrides={"beta": 0.1}, status=status, reports=({TIME: at, METRIC: accuracy},))


def decision(sweep: Sweep, done: list[TrialRecord], accuracy: float = 20.0, at: int = 4) -> str:
    """What a scheduler that knows of these says of a new trial's report."""
    scheduler: Any = scheduler_for(sweep, done)
    trial = SimpleNamespace(trial_id="new")
    scheduler.on_trial_add(None, trial)
    return scheduler.on_trial_result(None, trial, {TIME: at, METRIC: accuracy})


def test_asha_knows_what_was_done_before_a_resume():
    sweep = sweep_of(scheduler="asha")
    assert decision(sweep, []) == "CONTINUE"
    assert decision(sweep, [record("good", 90.0)]) == "STOP"


def test_asha_stops_nobody_before_the_first_validation():
    assert decision(sweep_of(scheduler="asha"), [record("good", 90.0, at=3)], at=3) == "CONTINUE"


def test_asha_and_the_trials_of_every_k_go_by_the_same_steps(tmp_path):
    search = {"inner_steps": {"grid": [10, 100]}}
    sweep = build_sweep({"search": search, "budget": 600, "scheduler": "asha"})
    parts = [(overrides, trial_config(sweep, overrides)) for overrides in draw_trials(sweep)]
    run = Storage(tmp_path)
    trials = [Trial(sweep, config, run, TrialRecord(id="a", overrides=overrides)) for overrides, config in parts]
    assert {trial.every for trial in trials} == {200}
    first = [decision(sweep, [record("good", 90.0, at=at)], at=at) for at in (199, 200)]
    assert first == ["CONTINUE", "STOP"]


def test_asha_lets_as_many_pass_as_the_sweep_says():
    done = [record(f"t{accuracy}", float(accuracy)) for accuracy in (10, 20, 30)]
    # Half of 10, 20, 30 lie above 20, a quarter above 25.
    assert decision(sweep_of(scheduler="asha", reduction_factor=2), done, 24.0) == "CONTINUE"
    assert decision(sweep_of(scheduler="asha", reduction_factor=4), done, 24.0) == "STOP"


def optuna_sweep(trials: int) -> Sweep:
    search = {"beta": {"loguniform": [1e-3, 1]}}
    return build_sweep(sweep_keys(search=search, search_algorithm="optuna", trials=trials))


def test_optuna_takes_a_trial_that_diverged_for_the_worst_whatever_it_had_reported():
    search: Any = optuna_for(optuna_sweep(3), [], [record("a", 20.0), record("b", 90.0, "failed")])
    assert [trial.value for trial in search._ot_study.trials] == [20.0, 0.0]


def test_optuna_runs_what_was_lost_again_and_as_many_more_as_are_missing():
    records = {each.id: each for each in (record("a", 20.0), record("b", 10.0, "lost"))}
    assert what_is_left(optuna_sweep(5), records) == ([{"beta": 0.1}], 4)


def session(sweep: Sweep, records: dict[str, TrialRecord], begun: int, finished: int) -> None:
    """One session of an optuna sweep: so many trials begin, the first of them finish, and it is interrupted."""
    waiting, left = what_is_left(sweep, records)
    search: Any = optuna_for(sweep, waiting, [each for each in records.values() if each.done])
    drawn = [search.suggest(f"{number}")["overrides"] for number in range(min(begun, left))]
    names = [name_of(sweep, overrides) for overrides in drawn]
    assert len(set(names)) == len(names), "no trial runs twice in a session"
    for place, (name, overrides) in enumerate(zip(names, drawn, strict=True)):
        records[name] = record(name, 20.0 + place, "finished" if place < finished else "running")
        records[name] = records[name].changed(overrides=overrides)


@pytest.mark.parametrize(
    "sessions", [[(2, 0)], [(2, 2), (2, 0)], [(3, 0), (3, 1), (3, 0), (4, 2), (5, 2), (3, 0)]], ids=str
)
def test_however_often_an_optuna_sweep_is_interrupted_its_trials_are_as_many_as_asked_for(sessions):
    sweep, records = optuna_sweep(18), dict[str, TrialRecord]()
    for begun, finished in [*sessions, (18, 18)]:
        session(sweep, records, begun, finished)
    assert len(records) == 18
    assert all(each.done for each in records.values())


def test_optuna_draws_nothing_again_that_is_left_where_trials_were_deleted():
    sweep, records = optuna_sweep(8), dict[str, TrialRecord]()
    session(sweep, records, 2, 2)
    deleted = list(records)
    session(sweep, records, 2, 2)
    for name in deleted:
        del records[name]
    session(sweep, records, 8, 8)
    assert len(records) == 8


def test_a_trial_whose_processes_died_is_tried_again(tmp_path):
    sweep, run = sweep_of(), Storage(tmp_path)
    first, second = draw_trials(sweep)
    name = name_of(sweep, first)
    Bookkeeper(str(run), 2).ended(name, first, "its processes died")
    records = read_records(run)
    assert (records[name].status, records[name].reason) == ("lost", "its processes died")
    assert what_is_left(sweep, records) == ([first, second], 2)


def test_what_has_ended_by_itself_is_not_noted_as_stopped(tmp_path):
    run = Storage(tmp_path)
    for status in ("finished", "failed"):
        record(status, 20.0, status).save(run)
        Bookkeeper(str(run), 2).ended(status, {"beta": 0.1}, None)
    record("behind", 20.0, "running").save(run)
    Bookkeeper(str(run), 2).ended("behind", {"beta": 0.1}, None)
    noted = {name: each.status for name, each in read_records(run).items()}
    assert noted == {"finished": "finished", "failed": "failed", "behind": "stopped"}


def test_how_a_sweep_stands_is_told_in_a_line():
    assert how_it_stands(3, {}) == "3 trials to run"
    known = {each.id: each for each in (record("a", 1.0), record("b", 1.0, "stopped"), record("c", 1.0, "lost"))}
    assert how_it_stands(3, known) == "3 trials to run, 1 of them begun earlier; 2 are done"


def test_a_cluster_that_grows_is_waited_for_as_long_as_the_config_says(monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(sweep_module, "check_room", lambda *question: asked.append(question))
    topology = {"workers": 1, "cpus_per_learner": 3, "gpus_per_learner": 0, "wait_seconds": 600}
    sweep = sweep_of(base_more={"topology": topology})
    check_rooms(sweep, draw_trials(sweep))
    assert asked == [([{"CPU": 3.0}], "one trial of the sweep", 600.0)]


def test_a_trial_is_taken_up_as_often_as_the_sweep_says(monkeypatch, tmp_path):
    options: dict[str, Any] = {}
    monkeypatch.setattr(sweep_module, "run_trials", lambda *parts, **named: options.update(named))
    sweep = sweep_of(max_failures=5)
    start(sweep, Storage(tmp_path), draw_trials(sweep), 2, [])
    assert options["max_failures"] == 5
