"""A sweep as a user meets it: its file, its results, trials that crash, kill -9, what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from rayctsl.commands.tune import main
from rayctsl.config import load_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.registry import open_initialization
from rayctsl.sweeps.config import build_sweep, draw_trials, load_sweep, trial_config, trial_id
from rayctsl.sweeps.report import format_choices, settings_of

SWEEPS = Path(__file__).parents[2] / "configs" / "sweeps"
TASKS = ("sweep_grey", "sweep_colour")


@pytest.fixture(scope="session")
def sweep_tasks(data_root: Path) -> tuple[str, ...]:
    """Two tiny datasets whose classes differ in brightness, so that there is something to learn."""
    random = np.random.default_rng(0)
    for name, channels in zip(TASKS, (1, 3), strict=True):
        for split, count in (("train", 96), ("test", 16)):
            labels = np.arange(count) % 3
            noise = random.integers(0, 60, (count, 12, 12, channels))
            images = (noise + 80 * labels[:, None, None, None]).astype(np.uint8)
            write_split(
                data_root / name / f"{split}.arrow",
                images,
                labels,
                SplitInfo(name, split, (12, 12, channels), tuple("abc")),
            )
    return TASKS


def sweep_keys(inner_steps: int = 4, base_more: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "inner_steps": inner_steps,
        "model": {"name": "resnet8", "width": 4},
        "data": {"tasks": list(TASKS), "batch_size": 8},
    }
    base.update(base_more or {})
    keys = {"base": base, "budget": 8, "report_every": 4, "validation": {"steps": 4, "batch_size": 8, "held_out": 0.4}}
    return {**keys, **more}


def write_sweep(folder: Path, **keys: Any) -> str:
    path = folder / "sweep-file.yaml"
    path.write_text(yaml.safe_dump(sweep_keys(**keys)))
    return str(path)


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    return pq.read_table(run_dir / "results.parquet").to_pylist()


# The file


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sweeps_that_come_with_the_program_are_valid(path):
    sweep = load_sweep(path)
    configs = [trial_config(sweep, overrides) for overrides in draw_trials(sweep)]
    assert len({trial_id(c, o) for c, o in zip(configs, draw_trials(sweep), strict=True)}) == len(configs)
    assert {config.inner_steps * config.trajectories for config in configs} == {sweep.budget}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"search": {}}, "search is empty"),
        ({"serch": {"beta": {"grid": [1]}}}, "sweep key 'serch' is unknown; did you mean 'search'?"),
        ({"search": {"beta": {"gird": [1]}}}, "did you mean 'grid'?"),
        ({"search": {"beta": {"grid": [1], "choice": [1]}}}, "exactly one of grid, choice or loguniform"),
        ({"search": {"beta": {"loguniform": [1, 0.1]}}}, "a lower and a higher bound"),
        ({"search": {"method.bta": {"grid": [1]}}}, "config key 'method.bta' is unknown; did you mean 'beta'?"),
        ({"search": {"method": {"grid": ["reptil"]}}}, "did you mean 'reptile'?"),
        ({"search": {"beta": {"grid": [-1]}}}, "method.beta"),
        ({"search": {"inner_steps": {"grid": [3]}}}, "budget of 8 inner steps is not a multiple of inner_steps 3"),
        ({"search": {"beta": {"grid": [1]}}, "trials": 2}, "would repeat the same grid"),
        ({"search": {"beta": {"grid": [1]}}, "validation": {"stps": 1}}, "did you mean 'steps'?"),
        ({"search": {"beta": {"grid": [1]}}, "search_algorithm": "optuna"}, "optuna needs a loguniform dimension"),
        ({"search": {"beta": {"grid": [1]}}, "base": "nowhere.yaml"}, "there is no config file"),
    ],
)
def test_a_wrong_file_is_one_line_and_writes_nothing(tmp_path, capsys, wrong, sentence):
    run_dir = tmp_path / "run"
    keys = {"search": None, **wrong}
    path = write_sweep(tmp_path, **{key: value for key, value in keys.items() if value is not None})
    assert main(["--config", path, "--run-dir", str(run_dir)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not run_dir.exists()


def test_other_bad_input(tmp_path, capsys, sweep_tasks):
    path = write_sweep(tmp_path, search={"beta": {"grid": [1]}})
    assert main([]) == 2
    assert main(["--config", path, "--resume", str(tmp_path)]) == 2
    assert main(["--resume", str(tmp_path)]) == 2
    assert "not the folder of a sweep" in capsys.readouterr().err
    assert main(["--config", path, "--run-dir", str(tmp_path)]) == 2
    assert "already used" in capsys.readouterr().err


def test_grids_are_crossed_and_draws_are_a_function_of_the_seed():
    search = {
        "method": {"grid": ["shifting", "reptile"]},
        "beta": {"loguniform": ["1e-3", 10]},
        "inner_steps": {"choice": [2, 4]},
    }
    sweep = build_sweep(sweep_keys(search=search, trials=30))
    trials = draw_trials(sweep)
    assert trials == draw_trials(sweep)
    assert trials != draw_trials(build_sweep(sweep_keys(search=search, trials=30, seed=1)))
    assert len(trials) == 60
    betas = np.array([trial["beta"] for trial in trials])
    assert betas.min() >= 1e-3
    assert betas.max() <= 10
    assert 0.3 < (betas < 0.1).mean() < 0.7, "half of a log-uniform draw lies below the geometric middle"


def test_a_base_without_beta_takes_the_papers_for_each_k():
    sweep = build_sweep({"search": {"inner_steps": {"grid": [10, 100, 1000]}}, "budget": 1000})
    assert [trial_config(sweep, trial).method.beta for trial in draw_trials(sweep)] == [1.0, 0.1, 0.01]


# The objective


def test_no_image_serves_two_ends(sweep_tasks):
    from rayctsl.data.library import open_dataset
    from rayctsl.learning.validation import divide, training_problem

    sweep = build_sweep(sweep_keys(search={"beta": {"grid": [1]}}))
    dataset = open_dataset(TASKS[0])
    seen, tuned, measured = divide(dataset, sweep)
    assert sorted([*seen, *tuned, *measured]) == list(range(96))
    assert (len(seen), len(tuned), len(measured)) == (58, 19, 19)
    task: Any = training_problem(trial_config(sweep, {"beta": 1}), sweep).build_task(TASKS[0], "cpu")
    assert len(task.dataset.train) == len(seen)
    everything = np.arange(len(seen))
    assert np.array_equal(task.dataset.train.images(everything), dataset.train.images(seen))
    assert np.array_equal(task.dataset.train.labels, dataset.train.labels[seen])


# Room


@pytest.mark.parametrize(
    ("bundles", "nodes", "missing"),
    [
        ([{"CPU": 1.0}] * 2, [{"CPU": 2.0}], {}),
        ([{"CPU": 1.0}] * 3, [{"CPU": 2.0}], {"CPU": 1.0}),
        ([{"CPU": 2.0}] * 2, [{"CPU": 3.0}, {"CPU": 1.0}], {"CPU": 2.0}),  # enough in all, but not in one place
        ([{"GPU": 0.5}, {"CPU": 1.0, "GPU": 0.5}], [{"CPU": 4.0, "GPU": 1.0}], {}),
        ([{"CPU": 1.0, "GPU": 1.0}], [{"CPU": 4.0}], {"CPU": 1.0, "GPU": 1.0}),
    ],
)
def test_shortfall(bundles, nodes, missing):
    from rayctsl.sweeps.sweep import shortfall

    assert shortfall(bundles, nodes) == missing


@pytest.mark.ray
def test_too_small_a_cluster_is_refused_at_once(ray_cluster, sweep_tasks, tmp_path, capsys):
    wide = {"topology": {"workers": 2, "cpus_per_learner": 3}}
    path = write_sweep(tmp_path, search={"beta": {"grid": [1]}}, base_more=wide)
    started = time.monotonic()
    assert main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 2
    assert "6 CPU asked for, 4 in the cluster, 3 missing" in capsys.readouterr().err
    assert time.monotonic() - started < 10
    assert not (tmp_path / "run").exists()


# Whole sweeps


def trial_row(beta: float, seed: int, accuracy: float | None, steps: int = 10) -> dict[str, Any]:
    status = "failed" if accuracy is None else "finished"
    row = {"trial": f"k{steps}-beta{beta}-{seed}", "status": status, "method.name": "reptile", "method.beta": beta}
    row |= {"inner_steps": steps, "trajectories": 100 // steps, "seed": seed, "validation_accuracy": accuracy}
    return {**row, "loss": 1.0, "inner_steps_total": 100, "seconds": float(seed), "reason": ""}


def test_seeds_of_a_setting_are_judged_by_their_mean():
    lucky = [trial_row(1.0, 0, 40.0), trial_row(1.0, 1, 10.0)]
    steady = [trial_row(2.0, 0, 31.0), trial_row(2.0, 1, 29.0)]
    fragile = [trial_row(4.0, 0, 50.0), trial_row(4.0, 1, None)]
    alone = [trial_row(1.0, 0, 20.0, steps=100)]
    settings = settings_of([*lucky, *steady, *fragile, *alone])
    assert [setting.accuracy for setting in settings] == [30.0, 25.0, 20.0, 50.0]
    assert settings[0].rows[0]["validation_accuracy"] == 31.0
    assert format_choices(settings).splitlines() == [
        "best beta by method and K",
        "  reptile, K 10: beta 2 (30.0 ± 12.7 %, 2 seeds)",
        "  reptile, K 100: beta 1 (20.0 %)",
    ]


def leftovers() -> list[str]:
    """Placement groups and actors that still exist, a moment after the end."""
    from ray.util.placement_group import placement_group_table
    from ray.util.state import list_actors

    deadline = time.monotonic() + 20
    while True:
        groups = [g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"]
        left = groups + [actor.class_name for actor in list_actors(filters=[("state", "!=", "DEAD")])]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_leaves_everything_and_a_crashed_trial_does_not_end_it(ray_cluster, sweep_tasks, tmp_path, capsys):
    path = write_sweep(tmp_path, search={"inner_steps": {"grid": [2, 4]}, "beta": {"grid": ["1e-1", "1e30"]}})
    run = tmp_path / "run"
    assert main(["--config", path, "--run-dir", str(run)]) == 0
    printed = capsys.readouterr()

    rows = rows_of(run)
    assert len(rows) == 4
    finished, failed = rows[:2], rows[2:]
    assert [row["status"] for row in rows] == ["finished", "finished", "failed", "failed"]
    assert {(row["inner_steps"], row["trajectories"]) for row in finished} == {(2, 4), (4, 2)}
    assert {row["inner_steps_total"] for row in finished} == {16}
    assert all(row["validation_accuracy"] > 0 and row["seconds"] > 0 and row["loss"] > 0 for row in finished)
    assert all("diverged" in row["reason"] and row["method.beta"] == 1e30 for row in failed)
    assert printed.err.count("warning: shifting-k") == 2
    assert "best beta by method and K" in printed.out
    record = json.loads((run / "trials" / finished[0]["trial"] / "trial.json").read_text())
    assert [report["step"] for report in record["reports"]] == [4, 8]

    best = load_config(run / "best.yaml")
    assert (best.inner_steps, best.method.beta) == (finished[0]["inner_steps"], 0.1)
    assert best.topology == load_config().topology
    assert best.snapshot_every == load_config().snapshot_every
    [published] = (run / "initializations").iterdir()
    own = open_initialization(run / "trials" / finished[0]["trial"])
    assert open_initialization(published).phi_bytes() == own.phi_bytes()
    assert open_initialization(published).card.metrics["validation_accuracy"] == finished[0]["validation_accuracy"]
    assert sorted(p.name for p in (run / "plots").iterdir()) == ["beta.png", "coordinates.png"]
    assert len(list((run / "tune").glob("*/events.out.tfevents.*"))) == 4
    assert leftovers() == []

    # The same trial cut off after its first report, as by a kill: it goes on from there, to the same bits.
    folder = run / "trials" / finished[0]["trial"]
    (folder / "trial.json").write_text(json.dumps({**record, "status": "running", "reports": record["reports"][:1]}))
    shutil.rmtree(folder / "initialization")
    shutil.rmtree(folder / "checkpoints" / "step-000000008")
    assert main(["--resume", str(run)]) == 0
    assert "continuing at inner step 4 of 8" in (folder / "log.txt").read_text()
    again = json.loads((folder / "trial.json").read_text())
    assert [report["validation_accuracy"] for report in again["reports"]] == [
        report["validation_accuracy"] for report in record["reports"]
    ]
    assert open_initialization(folder).phi_bytes() == open_initialization(published).phi_bytes()

    # A trial is the ordinary run, on the images that validation leaves it.
    from rayctsl.learning.run import run_local
    from rayctsl.learning.run_folder import RunFolder
    from rayctsl.learning.validation import training_problem

    sweep = load_sweep(path)
    config = trial_config(sweep, {"inner_steps": finished[0]["inner_steps"], "beta": 0.1})
    here = run_local(config, RunFolder.open(str(tmp_path / "here"), config), training_problem(config, sweep))
    assert here.card.sha256 == own.card.sha256


@pytest.mark.ray
@pytest.mark.slow
def test_killed_sweep_resumes_without_running_finished_trials_again(ray_cluster, sweep_tasks, tmp_path, capsys):
    path = write_sweep(
        tmp_path,
        search={"beta": {"grid": [0.1, 0.2, 0.3, 0.4, 0.5]}},  # one more than the cluster runs at once
        budget=60,
        report_every=20,
        inner_steps=20,
    )
    run = tmp_path / "run"
    command = [sys.executable, "-m", "rayctsl.tune", "--config", path, "--run-dir", str(run), "--address", ray_cluster]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (finished := finished_trials(run)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = finished_trials(run)
    assert len(finished) < 5, "the kill came too late to show anything"
    before = {name: (run / "trials" / name / "initialization" / "card.json").stat().st_mtime_ns for name in finished}
    begun = {p.parent.name for p in (run / "trials").glob("*/trial.json")}

    assert main(["--resume", str(run)]) == 0
    said = capsys.readouterr().err
    assert f"{5 - len(finished)} trials to run, {len(begun)} begun earlier" in said
    assert not any(name in said for name in finished)
    rows = rows_of(run)
    assert [row["status"] for row in rows] == ["finished"] * 5
    assert {row["inner_steps_total"] for row in rows} == {120}
    for name, stamp in before.items():
        assert (run / "trials" / name / "initialization" / "card.json").stat().st_mtime_ns == stamp
    assert leftovers() == []


def finished_trials(run: Path) -> set[str]:
    records = [json.loads(path.read_text()) for path in (run / "trials").glob("*/trial.json")]
    return {record["id"] for record in records if record["status"] == "finished"}


@pytest.mark.ray
@pytest.mark.slow
def test_optuna_and_asha(ray_cluster, sweep_tasks, tmp_path, capsys):
    keys = {"search": {"beta": {"loguniform": [1e-3, 1]}}, "search_algorithm": "optuna", "trials": 3}
    wide = {"topology": {"workers": 2, "cpus_per_learner": 2}}  # the cluster holds one such trial at a time
    path = write_sweep(tmp_path, scheduler="asha", reduction_factor=2, base_more=wide, **keys)
    run = tmp_path / "run"
    assert main(["--config", path, "--run-dir", str(run)]) == 0
    rows = rows_of(run)
    assert len(rows) == 3
    assert {row["status"] for row in rows} <= {"finished", "stopped"}
    assert leftovers() == []


def test_asha_stops_the_worse_and_knows_what_was_done_before_a_resume():
    from types import SimpleNamespace

    from rayctsl.sweeps.sweep import build_scheduler
    from rayctsl.sweeps.trial import TrialRecord

    sweep = build_sweep(sweep_keys(search={"beta": {"grid": [1, 2]}}, scheduler="asha"))

    def decision(done: list[TrialRecord]) -> str:
        scheduler: Any = build_scheduler(sweep, done)
        trial = SimpleNamespace(trial_id="new")
        scheduler.on_trial_add(None, trial)
        return scheduler.on_trial_result(None, trial, {"step": 4, "validation_accuracy": 20.0})

    good = TrialRecord("good", {"beta": 1}, "finished", "", [{"step": 4, "validation_accuracy": 90.0}])
    assert decision([]) == "CONTINUE"
    assert decision([good]) == "STOP"
