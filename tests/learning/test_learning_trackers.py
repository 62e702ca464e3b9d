"""Experiment trackers, each against its own files: no server and no network."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rayctsl.config import Config
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.trackers import finite, open_trackers
from rayctsl.storage import Storage


def write_rows(folder: Path, config: Config) -> None:
    storage = Storage(folder)
    metrics = Metrics(storage, open_trackers(storage, config))
    for step in (1, 2):
        metrics.add({"step": step, "loss": 2.0 / step, "trajectory": 1}, {"latin": 3.0 / step, "gone": float("nan")})
    metrics.close()


def test_tensorboard_is_on_by_itself_and_off_when_asked(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_rows(tmp_path / "on", Config())
    board = EventAccumulator(str(tmp_path / "on" / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in board.Scalars("loss")] == [(1, 2.0), (2, 1.0)]
    assert [event.value for event in board.Scalars("loss/latin")] == [3.0, 1.5]
    write_rows(tmp_path / "off", Config(tensorboard=False))
    assert not (tmp_path / "off" / "tensorboard").exists()


def test_in_a_bucket_there_is_no_tensorboard_and_who_asks_for_it_is_told() -> None:
    bucket = Storage("s3://nowhere/run?endpoint_override=127.0.0.1:1")
    assert open_trackers(bucket, Config()) == []
    with pytest.raises(ValueError, match="need a local run folder"):
        open_trackers(bucket, Config(tensorboard=True))


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path))
    write_rows(tmp_path, Config(tensorboard=False, wandb="rayctsl"))
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 60
    while b"loss/latin" not in (content := file.read_bytes()):  # a process of its own writes it
        assert time.monotonic() < deadline, content
        time.sleep(0.05)
    assert b"inner_steps" in content


@pytest.mark.filterwarnings("ignore")
def test_mlflow_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    write_rows(tmp_path, Config(tensorboard=False, mlflow="demo"))
    client = MlflowClient(f"file://{tmp_path}/mlruns")
    experiment = client.get_experiment_by_name("demo")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method"] == "shifting"
    assert [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss")] == [
        (1, 2.0),
        (2, 1.0),
    ]
    assert run.info.status == "FINISHED"


def test_what_is_no_number_is_not_sent() -> None:
    assert finite({"a": 1.0, "b": float("nan"), "c": "word", "d": 2}) == {"a": 1.0}
