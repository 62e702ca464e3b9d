"""Metrics: a resumed run goes on from the rows of its snapshot, each step once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rayctsl.learning.metrics import Metrics, read_metrics, read_task_losses
from rayctsl.storage import Storage


def test_rows_of_a_resumed_run_end_at_its_snapshot(tmp_path):
    first = Metrics(Storage(tmp_path))
    for step in range(1, 7):
        first.add({"step": step, "loss": 1.0})
    first.save()
    second = Metrics(Storage(tmp_path))
    second.restore(4)
    assert [row["step"] for row in second.rows] == [1, 2, 3, 4]
    second.add({"step": 5, "loss": 2.0, "more": 1})
    second.close()
    assert read_metrics(Storage(tmp_path)).to_pydict() == {
        "step": [1, 2, 3, 4, 5],
        "loss": [1.0, 1.0, 1.0, 1.0, 2.0],
        "more": [None, None, None, None, 1],
    }


def test_a_part_that_was_being_written_when_its_driver_was_killed_is_not_there(tmp_path, monkeypatch):
    metrics = Metrics(Storage(tmp_path))
    metrics.add({"step": 1, "loss": 1.0})
    metrics.save()
    metrics.add({"step": 2, "loss": 1.0})
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", lambda *unused: sys.exit())  # nothing after it is done, tidying up neither
        killed.setattr(Path, "unlink", lambda *unused, **options: None)
        with pytest.raises(SystemExit):
            metrics.save()
    (litter,) = tmp_path.glob("metrics.parquet/*.tmp")
    litter.write_bytes(b"")
    second = Metrics(Storage(tmp_path))
    second.restore(2)
    assert [row["step"] for row in second.rows] == [1]
    assert pq.read_table(tmp_path / "metrics.parquet")["step"].to_pylist() == [1]  # other readers pass it over too


def test_a_run_without_rows_leaves_no_file(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    metrics.restore(3)
    metrics.close()
    assert list(tmp_path.iterdir()) == []


def test_task_losses_are_in_long_form_and_appended(tmp_path):
    storage = Storage(tmp_path)
    metrics = Metrics(storage)
    for step in (10, 20, 30):
        metrics.add({"step": step, "loss": 1.5}, {"a": 1.0, "b": 2.0})
        metrics.save()
    assert storage.names("metrics.parquet") == [
        "part-000000010.parquet",
        "part-000000020.parquet",
        "part-000000030.parquet",
    ]
    whole = pq.read_table(tmp_path / "metrics.parquet").to_pylist()  # as any reader would
    assert {"step": 20, "loss": 2.0, "task": "b"} in whole
    assert len(whole) == 9
    resumed = Metrics(storage)
    resumed.restore(20)
    resumed.add({"step": 30, "loss": 0.5}, {"a": 0.0, "b": 1.0})
    resumed.save()
    assert read_metrics(storage)["loss"].to_pylist() == [1.5, 1.5, 0.5]
    losses = read_task_losses(storage)
    assert losses.filter(pc.equal(losses["task"], "a"))["loss"].to_pylist() == [1.0, 1.0, 0.0]
    assert resumed.curves == {"a": [1.0, 1.0, 0.0], "b": [2.0, 2.0, 1.0]}


def test_the_one_wide_file_of_earlier_versions_is_taken_up(tmp_path):
    old = pa.table({"step": [1, 2, 3], "loss": [1.5, 1.5, 1.5], "loss/a": [1.0, 1.0, 1.0], "loss/b": [2.0, 2.0, 2.0]})
    pq.write_table(old, tmp_path / "metrics.parquet")
    metrics = Metrics(Storage(tmp_path))
    metrics.restore(2)
    metrics.add({"step": 3, "loss": 1.0}, {"a": 0.5, "b": 1.5})
    metrics.close()
    assert read_metrics(Storage(tmp_path)).to_pydict() == {"step": [1, 2, 3], "loss": [1.5, 1.5, 1.0]}
    assert read_task_losses(Storage(tmp_path))["loss"].to_pylist() == [1.0, 2.0, 1.0, 2.0, 0.5, 1.5]


def test_a_run_may_go_back_to_its_beginning(tmp_path):
    for _ in range(2):  # after the first time, what is left is an empty folder
        metrics = Metrics(Storage(tmp_path))
        metrics.add({"step": 1, "loss": 1.0}, {"a": 1.0})
        metrics.save()
        metrics.restore(0)
        metrics.restore(0)
        assert metrics.rows == []
    metrics.add({"step": 1, "loss": 2.0}, {"a": 2.0})
    metrics.close()
    assert read_metrics(Storage(tmp_path)).to_pydict() == {"step": [1], "loss": [2.0]}
