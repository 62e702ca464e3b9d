"""How commands end before their time: SIGTERM to a whole process group, starts that fail, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayctsl.commands.train import main
from rayctsl.config import Config, load_config
from rayctsl.learning import run
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import snapshot_folders, step_of
from rayctsl.signals import Terminated, stop_if_asked, term_as_interrupt
from rayctsl.storage import Storage
from tests.commands.test_commands_train import flags, wait_for_snapshot
from tests.processes import of_session

LONG = ["--inner-steps", "100000", "--set", "snapshot_every=20"]


def tiny_config(tasks: str) -> Config:
    tiny = {"data.tasks": tasks.split(","), "model.name": "resnet8", "model.width": 4, "batch_size": 8}
    return load_config(None, {**tiny, "inner_steps": 2, "trajectories": 1})


@contextlib.contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The train command as the leader of a session, as batch systems start it; nothing of it survives the test."""
    command = [sys.executable, "-m", "rayctsl.train", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        for left in of_session(process.pid):
            os.kill(left, signal.SIGKILL)
        process.communicate()


@pytest.mark.ray
@pytest.mark.slow
def test_a_signal_to_the_whole_group_saves_and_says_how_to_go_on(small_tasks, tmp_path):
    """With a Ray of its own, whose processes must not hear the signal: it would take the learners' state along."""
    run_dir = tmp_path / "run"
    with started([*flags(small_tasks, *LONG), "--workers", "1", "--run-dir", str(run_dir)]) as process:
        wait_for_snapshot(run_dir, 20, process)
        assert len(of_session(process.pid)) > 3  # the cluster is there, and would be found if it stayed
        os.killpg(process.pid, signal.SIGTERM)
        asked = time.monotonic()
        _, said = process.communicate(timeout=120)
        seconds = time.monotonic() - asked
        assert process.returncode == 143, said
        assert "Traceback" not in said
        assert said.splitlines()[-1].endswith(f"stopped; continue with: python -m rayctsl.train --resume {run_dir}")
        (step,) = [line.split()[-1] for line in said.splitlines() if line.startswith("stopping: saving")]
        assert step_of(snapshot_folders(Storage(str(run_dir / "checkpoints")))[-1]) == int(step) >= 20
        # Pods have 25 seconds to end, and a machine that is busy takes longer by its load.
        assert seconds < 10 * max(1, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
        while of_session(process.pid):  # Ray's helpers follow within moments
            assert time.monotonic() - asked < 60
            time.sleep(0.1)


@pytest.mark.ray
def test_stopped_while_starting_it_ends_at_once_and_leaves_nothing(ray_cluster, small_tasks, tmp_path):
    run_dir = tmp_path / "run"
    with started([*flags(small_tasks, *LONG), "--run-dir", str(run_dir), "--address", ray_cluster]) as process:
        assert process.stderr is not None
        while "starting the learners" not in (line := process.stderr.readline()):
            assert line, process.wait()
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert said.splitlines()[-1] == "stopped before the first step; nothing was kept"
    assert not run_dir.exists()


@pytest.mark.ray
def test_a_start_that_fails_leaves_no_folder(ray_cluster, small_tasks, tmp_path, capsys):
    """After everything was opened: the lease, the trackers, Ray."""
    run_dir = tmp_path / "run"
    too_much = ["--set", "topology.cpus_per_learner=1000", "--run-dir", str(run_dir), "--address", ray_cluster]
    assert main([*flags(small_tasks), *too_much]) == 2
    assert "the cluster is too small" in capsys.readouterr().err
    assert not run_dir.exists()


def test_a_tracker_that_is_not_there_leaves_no_folder(small_tasks, tmp_path, capsys, monkeypatch):
    def not_installed(*unused: object) -> None:
        raise ValueError("wandb needs the package")

    monkeypatch.setattr(run, "open_trackers", not_installed)
    config = tiny_config(small_tasks)
    folder = RunFolder.open(str(tmp_path / "run"), config)
    with pytest.raises(ValueError, match="wandb"), folder.deleted_unless_begun():
        run_local(config, folder)
    assert not (tmp_path / "run").exists()


def test_a_run_whose_every_snapshot_is_damaged_begins_anew_only_when_asked(small_tasks, tmp_path):
    config, place = tiny_config(small_tasks), str(tmp_path / "run")
    first = run_local(config, RunFolder.open(place, config))
    for file in (tmp_path / "run" / "checkpoints").glob("step-*/meta*"):
        file.write_bytes(b"damaged")
    folder = RunFolder.open(place, resume="must")
    with pytest.raises(ValueError, match=r"every snapshot in .*run is damaged .*; begin anew with --restart"):
        run_local(folder.config, folder)
    assert snapshot_folders(Storage(f"{place}/checkpoints"))  # nothing was thrown away
    folder.restart()
    assert run_local(folder.config, folder).card.sha256 == first.card.sha256


def test_a_run_killed_in_its_first_snapshot_begins_by_itself(small_tasks, tmp_path, capsys):
    """Its state is the config's, so nothing can be lost."""
    config, place = tiny_config(small_tasks), str(tmp_path / "run")
    first = run_local(config, RunFolder.open(place, config))
    for whole in (tmp_path / "run" / "checkpoints").glob("step-*"):
        shutil.rmtree(whole)
    half = tmp_path / "run" / "checkpoints" / "step-000000000"
    half.mkdir()
    (half / "meta.safetensors").write_bytes(b"half of it")
    folder = RunFolder.open(place, resume="must")
    assert run_local(folder.config, folder).card.sha256 == first.card.sha256
    assert "snapshot step-000000000 is incomplete" in capsys.readouterr().err


def test_a_folder_that_another_driver_has_is_not_deleted(small_tasks, tmp_path):
    folder = RunFolder.open(str(tmp_path / "run"), load_config(None, {"data.tasks": small_tasks.split(",")}))
    lease = folder.claim()
    with pytest.raises(RuntimeError), folder.deleted_unless_begun():
        raise RuntimeError
    assert (tmp_path / "run" / "config.yaml").exists()
    lease.release()
    again = RunFolder.open(str(tmp_path / "run"), resume="must")
    with pytest.raises(RuntimeError), again.deleted_unless_begun():  # which it has not begun itself
        raise RuntimeError
    assert (tmp_path / "run" / "config.yaml").exists()


def test_a_signal_that_a_library_swallows_is_not_lost():
    with term_as_interrupt():
        with contextlib.suppress(KeyboardInterrupt):  # as some do while they are imported
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Terminated):
            stop_if_asked()
    stop_if_asked()  # and it is not remembered


def test_sigterm_is_heard_where_ctrl_c_is_not():
    """As in a script's background, where shells start commands with SIGINT ignored."""

    def is_stopped() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        pytest.fail("it was not heard")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(Terminated), term_as_interrupt():
            is_stopped()
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_stays_sigterm_while_a_generator_closes_a_context_of_its_own():
    """As when it comes while a cell's result is written, and the loop over the cells ends with it."""

    def cells() -> Iterator[int]:
        with term_as_interrupt():
            yield 1

    def is_stopped() -> None:
        with contextlib.closing(cells()) as finished:
            for _ in finished:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt) as caught, term_as_interrupt():
        is_stopped()
    assert caught.type is Terminated
    stop_if_asked()  # and it is not remembered


def test_make_clean_keeps_results():
    root = Path(__file__).parents[2]
    recipe = subprocess.check_output(["make", "--dry-run", "--no-print-directory", "clean"], cwd=root, text=True)
    assert recipe.strip() == "rm -rf .venv"
