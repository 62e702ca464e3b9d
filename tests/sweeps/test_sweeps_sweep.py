"""Whole sweeps as a user meets them: results, trials that crash, kill -9, schedulers, what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rayctsl.commands.tune import main
from rayctsl.config import load_config
from rayctsl.learning.lease import InUse, Lease
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.validation import training_problem
from rayctsl.registry import open_initialization
from rayctsl.storage import Storage
from rayctsl.sweeps import sweep as sweep_module
from rayctsl.sweeps.config import Sweep, build_sweep, load_sweep, trial_config, trial_id
from rayctsl.sweeps.records import METRIC, TIME, TrialRecord
from rayctsl.sweeps.sweep import run_sweep
from tests.sweeps.conftest import sweep_keys

ALONE = {"topology": {"workers": 1, "cpus_per_learner": 4}}  # the cluster holds one such trial at a time


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    return pq.read_table(run_dir / "results.parquet").to_pylist()


@pytest.fixture
def leaves_nothing(ray_cluster: str) -> Iterator[None]:
    """After the test there are no other actors and placement groups than before it, and Ctrl-C does what it did."""
    before, on_interrupt = _on_the_cluster(), signal.getsignal(signal.SIGINT)
    yield
    _wait_until_gone(before)
    assert signal.getsignal(signal.SIGINT) == on_interrupt


def _wait_until_gone(before: set[str]) -> None:
    deadline = time.monotonic() + 60  # Ray takes a moment to bury what has ended
    while (left := _on_the_cluster() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == set()


def _on_the_cluster() -> set[str]:
    from ray._private.state import actors
    from ray.util.placement_group import placement_group_table

    groups = {g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"}
    return groups | {name for name, actor in actors().items() if actor["State"] != "DEAD"}


@pytest.mark.ray
def test_too_small_a_cluster_is_refused_at_once(ray_cluster, sweep_tasks, write_sweep, tmp_path, capsys):
    wide = {"topology": {"workers": 2, "cpus_per_learner": 3}}
    path = write_sweep(search={"beta": {"grid": [1]}}, base_more=wide)
    assert main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 2
    assert "6 CPU asked for, 4 in the cluster, 3 missing" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "sweep_tasks")
def test_a_second_driver_of_a_sweep_is_refused(write_sweep, tmp_path):
    sweep, run = load_sweep(write_sweep(search={"beta": {"grid": [1]}})), Storage(tmp_path / "run")
    with (
        Lease(run.inside("lease"), "it", refresh=0.05),
        pytest.raises(InUse, match=f"the sweep in {run} is being written by process {os.getpid()}"),
    ):
        run_sweep(sweep, run)
    assert run.names("trials") == []


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("leaves_nothing", "sweep_tasks")
def test_a_sweep_is_killed_goes_on_and_leaves_everything(ray_cluster, write_sweep, tmp_path, capsys):
    path, run = write_sweep(search={"beta": {"grid": ["1e-1", "1e30"]}}, base_more=ALONE), tmp_path / "run"
    first = kill_after_the_first_trial(path, run, ray_cluster)
    folder = run / "trials" / first
    before = (folder / "trial.json").stat().st_mtime_ns

    # The second trial crashes, which does not end the sweep; the first is not run again.
    assert main(["--resume", str(run)]) == 0
    printed = capsys.readouterr()
    assert "1 trials to run; 1 are done" in printed.err
    assert (folder / "trial.json").stat().st_mtime_ns == before
    finished, failed = rows_of(run)
    assert (finished["trial"], finished["status"], failed["status"]) == (first, "finished", "failed")
    assert (finished["inner_steps"], finished["trajectories"], finished["inner_steps_total"]) == (4, 2, 16)
    assert min(finished[name] for name in ("validation_accuracy", "seconds", "loss")) > 0
    assert "diverged" in failed["reason"]
    assert failed["method.beta"] == 1e30
    assert printed.err.count("warning: shifting-k") == 1
    assert "best beta by method and K" in printed.out
    own = check_best(run, finished)

    # The first trial cut off after its first report, as by a kill: it goes on from there, to the same bits.
    record = json.loads((folder / "trial.json").read_text())
    assert [report["step"] for report in record["reports"]] == [4, 8]
    (folder / "trial.json").write_text(json.dumps({**record, "status": "running", "reports": record["reports"][:1]}))
    shutil.rmtree(folder / "initialization")
    shutil.rmtree(folder / "checkpoints" / "step-000000008")
    assert main(["--resume", str(run)]) == 0
    assert "1 trials to run, 1 of them begun earlier; 1 are done" in capsys.readouterr().err
    assert "continuing at inner step 4 of 8" in (folder / "log.txt").read_text()
    again = json.loads((folder / "trial.json").read_text())
    assert [report[METRIC] for report in again["reports"]] == [report[METRIC] for report in record["reports"]]
    assert {path.parent.name for path in (run / "tune").glob("*/events.out.tfevents.*")} == {first, failed["trial"]}
    assert open_initialization(folder).card.sha256 == own

    # A trial is the ordinary run, on the images that validation leaves it.
    sweep = load_sweep(path)
    config = trial_config(sweep, {"beta": 0.1})
    here = run_local(
        config, RunFolder.open(str(tmp_path / "here"), config), training_problem(config, sweep.validation, sweep.seed)
    )
    assert here.card.sha256 == own


def kill_after_the_first_trial(path: str, run: Path, address: str) -> str:
    """Begin a sweep whose trials run one by one, and kill it; returns the trial that has ended, the only one begun."""
    before = _on_the_cluster()
    command = [sys.executable, "-m", "rayctsl.tune", "--config", path, "--run-dir", str(run), "--address", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not finished_trials(run):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _wait_until_gone(before)
    (first,) = finished_trials(run)
    for other in {*run.glob("t*/shifting-*")} - {*run.glob(f"t*/{first}")}:
        shutil.rmtree(other)  # the second's trials/ and tune/: how far it came by then, nobody knows
    return first


def finished_trials(run: Path) -> set[str]:
    records = [json.loads(path.read_text()) for path in (run / "trials").glob("*/trial.json")]
    return {record["id"] for record in records if record["status"] == "finished"}


def check_best(run: Path, finished: Mapping[str, Any]) -> str:
    """What is left of the best trial for others; returns the checksum of its phi."""
    best = load_config(run / "best.yaml")
    assert (best.inner_steps, best.method.beta) == (finished["inner_steps"], 0.1)
    assert (best.topology.workers, best.topology.cpus_per_learner) == (1, 4)  # as the sweep's base says
    assert best.snapshot_every == load_config().snapshot_every
    [published] = (run / "initializations").iterdir()
    own = open_initialization(run / "trials" / finished["trial"])
    assert open_initialization(published).phi_bytes() == own.phi_bytes()
    assert open_initialization(published).card.metrics[METRIC] == finished[METRIC]
    assert sorted(p.name for p in (run / "plots").iterdir()) == ["beta.png", "coordinates.png"]
    return own.card.sha256


# Schedulers and search algorithms, with trials that only say what they would have measured


def played_trial(sweep: Sweep, run_dir: str, overrides: Mapping[str, Any]) -> None:
    """Two reports, of an accuracy that grows with beta."""
    from ray import tune

    name = trial_id(trial_config(sweep, overrides), overrides)
    record = TrialRecord(id=name, overrides=dict(overrides))
    for step in (4, 8):
        record = record.reported({TIME: step, METRIC: 10 * overrides["beta"]})
        record.closed("finished" if step == 8 else "running").save(Storage(run_dir))
        tune.report(record.reports[-1])


@pytest.fixture
def played_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "run_trial", played_trial)


@pytest.mark.ray
@pytest.mark.usefixtures("leaves_nothing", "played_trials")
def test_asha_stops_what_falls_behind(tmp_path):
    search = {"beta": {"grid": [2.0, 1.0]}}
    sweep = build_sweep(sweep_keys(search=search, scheduler="asha", reduction_factor=2, base_more=ALONE))
    records = run_sweep(sweep, Storage(tmp_path))
    seen = {record.overrides["beta"]: (record.status, len(record.reports)) for record in records.values()}
    assert seen == {2.0: ("finished", 2), 1.0: ("stopped", 1)}


@pytest.mark.ray
@pytest.mark.usefixtures("leaves_nothing", "played_trials")
def test_optuna_suggests_as_many_as_are_missing(tmp_path):
    search = {"beta": {"loguniform": [1e-3, 1]}}
    keys = sweep_keys(search=search, search_algorithm="optuna", trials=1, base_more=ALONE)
    first = run_sweep(build_sweep(keys), Storage(tmp_path))
    assert len(first) == 1
    more = run_sweep(build_sweep({**keys, "trials": 2}), Storage(tmp_path))
    assert len(more) == 2
    assert first.items() <= more.items()
    betas = [record.overrides["beta"] for record in more.values()]
    assert len(set(betas)) == 2
    assert all(1e-3 <= beta <= 1 for beta in betas)
