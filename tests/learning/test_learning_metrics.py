"""Metrics: a resumed run goes on from the rows of its snapshot, each step once."""

from __future__ import annotations

from rayctsl.learning.metrics import Metrics, read_metrics
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


def test_a_run_without_rows_leaves_no_file(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    metrics.restore(3)
    metrics.close()
    assert list(tmp_path.iterdir()) == []
