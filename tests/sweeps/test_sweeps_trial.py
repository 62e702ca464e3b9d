"""One trial without a cluster: where it is validated, what it reports, and what it says when it has diverged."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rayctsl.config import build_config
from rayctsl.futures import finished
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.storage import Storage
from rayctsl.sweeps import trial as trial_module
from rayctsl.sweeps.config import Sweep, build_sweep, trial_config, trial_id
from rayctsl.sweeps.records import METRIC, TIME, Report, TrialRecord, read_record, read_records
from rayctsl.sweeps.sweep import what_is_left
from rayctsl.sweeps.trial import Trial, num_learners, run_trial
from tests.sweeps.conftest import sweep_keys

OVERRIDES: dict[str, Any] = {"beta": 0.1}


def sweep_of(**keys: Any) -> Sweep:
    return build_sweep(sweep_keys(search={"beta": {"grid": [0.1]}}, **keys))


def begun(sweep: Sweep, storage: Storage, *reports: Report) -> Trial:
    record = TrialRecord(id="a", overrides=OVERRIDES, reports=reports)
    return Trial(sweep, trial_config(sweep, OVERRIDES), storage, record)


@pytest.mark.parametrize(("report_every", "every"), [(3, 4), (4, 4), (5, 8), (8, 8)])
def test_it_is_validated_at_the_ends_of_trajectories(tmp_path, report_every, every):
    trial = begun(sweep_of(report_every=report_every), Storage(tmp_path))
    assert (trial.every, trial.config.snapshot_every) == (every, every)


@pytest.mark.parametrize(("steps", "every"), [(7, 14), (10, 10)])
def test_where_no_step_suits_all_it_is_validated_at_the_ends_of_its_own_trajectories(tmp_path, steps, every):
    search = {"inner_steps": {"grid": [7, 10]}, "trajectories": {"grid": [4, 5]}}
    sweep = build_sweep({"base": {"inner_steps": 10, "trajectories": 5}, "search": search})
    overrides = {"inner_steps": steps, "trajectories": 5}
    record = TrialRecord(id="a", overrides=overrides)
    assert Trial(sweep, trial_config(sweep, overrides), Storage(tmp_path), record).every == every


@pytest.mark.parametrize(("log_every", "every"), [(3, 3), (100, 4)])
def test_its_losses_are_logged_at_least_as_often_as_it_is_validated(tmp_path, log_every, every):
    trial = begun(sweep_of(base_more={"log_every": log_every}), Storage(tmp_path))
    assert trial.config.log_every == every


def test_nobody_learns_without_a_task():
    keys: dict[str, Any] = {"data": {"tasks": ["one", "two"]}, "topology": {"workers": 3}}
    learners = {name: num_learners(build_config({**keys, "method": {"name": name}})) for name in ("reptile", "single")}
    assert learners == {"reptile": 2, "single": 1}


def test_a_report_tells_of_all_that_was_spent_and_of_the_losses_since_the_last(tmp_path):
    sweep = sweep_of(seed=3)
    trial = begun(sweep, Storage(tmp_path), {TIME: 4, METRIC: 30.0, "seconds": 1000.0})
    judged, asked = [], []
    engine = SimpleNamespace(
        capture=lambda step: finished(SimpleNamespace(meta={"phi": torch.zeros(1), "average": torch.ones(1)})),
        name_phi=judged.append,
        on_learner=lambda measure: asked.append(measure.args[2:]) or 40.0,
    )
    rows = [{"step": step, "loss": float(step)} for step in (2, 4, 6, 8)]
    run: Any = SimpleNamespace(
        step=8,
        engine=engine,
        metrics=SimpleNamespace(rows=rows),
        problem=SimpleNamespace(task_names=("one", "two")),
    )
    report = trial._validate(run)
    assert report.pop("seconds") >= 1000.0  # with those before it was taken up again
    assert report == {TIME: 8, "inner_steps_total": 16, METRIC: 40.0, "loss": 7.0}
    assert asked == [(sweep.validation, 3)], "on the images that this sweep's training leaves out"
    assert judged == [torch.ones(1)], "what the trial leaves: the average of phi, where it has one"


def test_one_that_diverged_is_the_worst_of_all(tmp_path, monkeypatch):
    def diverge(trial: Trial) -> None:
        raise NonFiniteLoss("task 'one' diverged")

    sweep, told = sweep_of(), list[Report]()
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # which a trial's process changes
    monkeypatch.setattr(trial_module, "report", told.append)
    monkeypatch.setattr(Trial, "train", diverge)
    run_trial(sweep, str(tmp_path), OVERRIDES)
    assert told == [{TIME: 0, METRIC: 0.0}]
    record = read_record(Storage(tmp_path), trial_id(trial_config(sweep, OVERRIDES), OVERRIDES))
    assert record is not None
    assert (record.status, record.reason) == ("failed", "task 'one' diverged")
    assert what_is_left(sweep, read_records(Storage(tmp_path))) == ([], 0), "a sweep finds it by its name"
    run_trial(sweep, str(tmp_path), OVERRIDES)  # it is not tried again
    assert len(told) == 1


def test_one_that_ends_with_an_error_leaves_its_log(tmp_path, monkeypatch):
    def diverge(*parts: object, log: io.StringIO, **options: object) -> None:
        log.write("step 3: loss nan")
        raise NonFiniteLoss("task 'one' diverged")

    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(trial_module, "training_problem", lambda *parts: asked.append(parts[1:]))
    monkeypatch.setattr(trial_module, "trial_engine", lambda *parts: None)
    monkeypatch.setattr(trial_module, "train_with", diverge)
    sweep = sweep_of(seed=3)
    with pytest.raises(NonFiniteLoss):
        begun(sweep, Storage(tmp_path)).train()
    assert asked == [(sweep.validation, 3)], "the images that it is validated on are not trained on"
    assert Storage(tmp_path).read("trials/a/log.txt") == b"step 3: loss nan"
    assert read_records(Storage(tmp_path))["a"].status == "running", "known from its beginning on"


def test_what_is_reported_on_the_way_is_on_the_disk_first_and_the_end_is_left_to_who_closes_it(tmp_path, monkeypatch):
    told, disk = list[Report](), Storage(tmp_path)
    trial = begun(sweep_of(), disk)

    def tell(report: Report) -> None:
        assert read_records(disk)["a"].reports[-1] == report, "Tune may end the process in answer"
        told.append(report)

    monkeypatch.setattr(trial_module, "report", tell)
    monkeypatch.setattr(trial, "_validate", lambda run: {TIME: run.step, METRIC: 40.0})
    for step in (0, 2, 4, 4, 8):
        run: Any = SimpleNamespace(step=step, total=8)
        trial._report(run)
    assert told == [{TIME: 4, METRIC: 40.0}]
    assert [report[TIME] for report in trial.record.reports] == [4, 8]
    assert len(read_records(disk)["a"].reports) == 1
