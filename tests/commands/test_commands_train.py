"""The train command as a user meets it: its contract, wrong input, Ctrl-C, kill -9, resume."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rayctsl.commands.train import check_tasks, main
from rayctsl.config import load_config
from rayctsl.learning.run import Run, run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import snapshot_folders, step_of
from rayctsl.registry import open_initialization
from rayctsl.storage import Storage
from tests.stripes import write_stripes


def flags(tasks: str, *more: str) -> list[str]:
    tiny = ["--set", "model.name=resnet8", "--set", "model.width=4", "--set", "batch_size=8"]
    return ["--tasks", tasks, *tiny, "--inner-steps", "5", "--trajectories", "2", "--workers", "2", *more]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--tasks", "small_gray,small_colour"], "small_gray"),
        (["--method", "reptil"], "method 'reptil' is unknown; did you mean 'reptile'?"),
        (["--set", "inner.alpa=3"], "did you mean 'alpha'?"),
        (["--set", "novalue"], "--set takes key=value"),
        (["--beta", "-1"], "method.beta"),
        (["--inner-steps", "0"], "inner_steps"),
        (["--set", "model.name=resnet9"], "resnet9"),
        (["--config", "nowhere.yaml"], "there is no config file nowhere.yaml"),
        (["--resume", "nowhere"], "leave out --config and --run-dir"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(small_tasks, tmp_path, capsys, wrong, sentence):
    run_dir = tmp_path / "run"
    assert main([*flags(small_tasks), "--run-dir", str(run_dir), *wrong]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not run_dir.exists()


@pytest.mark.parametrize(
    "extra", [["--config", "configs/demo.yaml"], ["--run-dir", "elsewhere"]], ids=["config", "dir"]
)
def test_a_run_is_resumed_with_its_own_config_in_its_own_folder(capsys, extra):
    assert main(["--resume", "nowhere", *extra]) == 2
    assert "leave out --config and --run-dir" in capsys.readouterr().err


def test_datasets_are_looked_up_in_the_data_root_that_is_asked_for(data_root, tmp_path):
    write_stripes(tmp_path, "only_here")
    keys = {"tasks": ["only_here"], "model.name": "resnet8", "model.width": 4}
    check_tasks(load_config(None, {**keys, "data.root": str(tmp_path)}))
    with pytest.raises(ValueError, match="'only_here' is unknown"):
        check_tasks(load_config(None, keys))


def test_used_or_unwritable_run_dirs_and_strange_resumes_are_refused(small_tasks, tmp_path, capsys):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "something").write_text("mine")
    assert main([*flags(small_tasks), "--run-dir", str(tmp_path / "used")]) == 2
    assert "already used" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "used").iterdir()] == ["something"]
    assert main([*flags(small_tasks), "--run-dir", str(tmp_path / "used" / "something" / "below")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--resume", str(tmp_path / "used")]) == 2
    assert "not a run folder" in capsys.readouterr().err


def test_help_needs_neither_torch_nor_ray():
    show = "import sys; from rayctsl.commands.train import parser; parser().format_help()"
    code = f"{show}; print({{'torch', 'ray'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_a_dry_run_needs_no_data_and_writes_nothing(data_root, tmp_path, capsys, monkeypatch):
    """As README proposes it for the paper's own config, whose datasets a newcomer does not have."""
    monkeypatch.chdir(tmp_path)
    smaller = ["--set", "model.name=resnet8", "--set", "model.width=4", "--set", "batch_size=2"]
    assert main(["--config", "configs/paper/image/shifting.yaml", "--workers", "4", *smaller, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"shifting, beta 0.01, on 8 tasks: tiny_imagenet_1, .*\n"
        r"200 trajectories of 1,000 inner steps: 200,000 steps of each task\n"
        r"resnet8: [\d,]+ parameters of the backbone\n"
        r"on 4 CPU learners here: about \d+ ms a step, [\d.]+ \w+ in all, [\d.]+ GB of memory, \d+ MB a snapshot\n"
        r"nothing was written or started; .*\n"
        r"not prepared yet: rayctsl data prepare tiny_imagenet_1 ",
        said,
    ), said
    assert list(tmp_path.iterdir()) == []
    assert main(["--tasks", "latn", "--dry-run"]) == 2
    assert "did you mean 'latin'?" in capsys.readouterr().err


def test_a_dry_runs_step_takes_as_long_as_the_slowest_learner(capsys, monkeypatch):
    tasks = {"latin": 1.0, "shapes": 4.0, "flags": 1.0}
    costs = {name: SimpleNamespace(seconds=seconds, activation_bytes=0) for name, seconds in tasks.items()}
    monkeypatch.setattr("rayctsl.bench.plan.task_costs", lambda config, measured: costs)
    small = ["--set", "model.name=resnet8", "--set", "model.width=4"]
    assert main(["--tasks", ",".join(tasks), "--workers", "2", *small, "--dry-run"]) == 0
    # 200 trajectories of 1,000 inner steps take 800,000 s; two processes of 450 MB learn.
    said = "on 2 CPU learners here: about 4000 ms a step, 9.3 days in all, 0.9 GB of memory"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("restart", [[], ["--restart"]], ids=["resume", "restart"])
def test_a_begun_run_is_shown_and_neither_started_nor_deleted(small_tasks, tmp_path, capsys, monkeypatch, restart):
    def started(*words: object, **more: object) -> None:
        raise AssertionError("the run has started")

    monkeypatch.setattr("rayctsl.cluster.engine.run_on_ray", started)
    keys = {"model.name": "resnet8", "model.width": 4, "batch_size": 8, "inner_steps": 2, "trajectories": 3}
    config = load_config(None, {**keys, "data.tasks": small_tasks.split(",")})
    run_local(config, RunFolder.open(str(tmp_path / "run"), config))
    Storage(tmp_path / "run").write("checkpoints/kept", b"")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    begun = ["--resume", str(tmp_path / "run"), *restart, "--workers", "1"]
    capsys.readouterr()
    assert main([*begun, "--print-config"]) == 0
    (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
    topology = config.topology.model_copy(update={"workers": 1})
    assert load_config(tmp_path / "shown.yaml") == config.model_copy(update={"topology": topology})
    (tmp_path / "shown.yaml").unlink()
    assert main([*begun, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "3 trajectories of 2 inner steps" in said
    assert "on 1 CPU learners here" in said
    assert main([*begun, "--beta", "7", "--print-config"]) == 2
    assert "only its topology and its data root may change" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def test_print_config_prints_what_another_run_can_start_from(tmp_path, capsys):
    assert main(["--config", "configs/demo.yaml", "--method", "reptile", "--seed", "7", "--print-config"]) == 0
    (tmp_path / "again.yaml").write_text(capsys.readouterr().out)
    same = load_config("configs/demo.yaml", {"method.name": "reptile", "seed": 7})
    assert load_config(tmp_path / "again.yaml") == same


def test_unknown_address(small_tasks, tmp_path, capsys):
    arguments = [*flags(small_tasks), "--run-dir", str(tmp_path / "run"), "--address", "127.0.0.1:1"]
    code = f"import sys; from rayctsl.commands.train import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr
    assert "Traceback" not in done.stderr


def start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rayctsl.train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_snapshot(run_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    checkpoints = Storage(str(run_dir / "checkpoints"))
    while not any(step_of(name) >= step for name in snapshot_folders(checkpoints)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def ctrl_c_at(step: int) -> Callable[..., None]:
    """Advances a run; the user presses Ctrl-C when it has come so far."""
    advance, pressed = Run.advance, list[int]()

    def watched(run: Run, last: bool = False) -> None:
        if run.step >= step and not pressed:
            pressed.append(run.step)
            signal.raise_signal(signal.SIGINT)
        advance(run, last)

    return watched


@pytest.mark.ray
@pytest.mark.slow
def test_stopped_and_killed_runs_resume_to_the_same_bits(
    ray_cluster, kept_actors, small_tasks, tmp_path, capfd, monkeypatch
):
    keys = ["--inner-steps", "150", "--trajectories", "2", "--set", "snapshot_every=15"]
    run_dir = tmp_path / "run"
    on_ray = ["--address", ray_cluster]

    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", ctrl_c_at(20))
        assert main([*flags(small_tasks, *keys), "--run-dir", str(run_dir), *on_ray]) == 130
    _, said = capfd.readouterr()
    assert f"--resume {run_dir}" in said
    assert "Traceback" not in said

    reached = step_of(snapshot_folders(Storage(str(run_dir / "checkpoints")))[-1])
    process = start(["--resume", str(run_dir), *on_ray])
    wait_for_snapshot(run_dir, reached + 15, process)
    process.kill()
    process.communicate()

    assert main(["--resume", str(run_dir)]) == 0
    printed, said = capfd.readouterr()
    assert re.search(r"continuing at inner step \d+ of 300", said)
    assert printed.splitlines()[-1] == f"initialization: {run_dir}/initialization"

    overrides = {"data.tasks": small_tasks.split(","), "model.name": "resnet8", "model.width": 4, "batch_size": 8}
    config = load_config(None, {**overrides, "inner_steps": 150, "trajectories": 2, "snapshot_every": 1000})
    undisturbed = run_local(config, RunFolder.open(str(tmp_path / "undisturbed"), config))
    assert open_initialization(run_dir).card.sha256 == undisturbed.card.sha256
    assert sorted(os.listdir(run_dir)) == [
        "checkpoints",
        "config.yaml",
        "initialization",
        "metrics.parquet",
        "plots",
        "tensorboard",
    ]
