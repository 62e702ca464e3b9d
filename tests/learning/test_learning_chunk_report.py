"""What is said of a chunk of steps: which rows, under which numbers, and the curve that the card shows."""

from __future__ import annotations

import numpy as np
import pytest

from rayctsl.config import build_config
from rayctsl.learning.chunk_report import loss_summary, note, record
from rayctsl.learning.engine import Chunk
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.problem import Problem
from rayctsl.storage import Storage


def a_problem(**keys: int) -> Problem:
    config = build_config({"inner_steps": 5, "trajectories": 2, "data": {"tasks": ["a", "b"]}, **keys})
    return Problem(config, ("a", "b"), lambda name, device: pytest.fail("no task is built"))


def a_chunk(losses: np.ndarray, first: int) -> Chunk:
    steps = np.arange(first, first + len(losses))
    return Chunk(losses, np.full(len(losses), 0.5), np.ones(len(losses)), 2 * (steps + 1), np.zeros(2), seconds=2.0)


def test_rows_are_numbered_from_one_and_the_last_step_is_always_one_of_them(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    for first in (0, 5):
        record(metrics, a_chunk(np.ones((5, 2)), first), first, a_problem(log_every=4))
    numbers = [(row["step"], row["trajectory"], row["k"], row["inner_steps_total"]) for row in metrics.rows]
    assert numbers == [(4, 1, 4, 8), (8, 2, 3, 16), (10, 2, 5, 20)]
    assert {row["steps_per_second"] for row in metrics.rows} == {2.5}


@pytest.mark.parametrize("rows", [1, 200, 201, 399, 1000, 1001])
def test_the_cards_curve_has_at_most_200_points_and_ends_where_the_run_did(tmp_path, rows):
    metrics = Metrics(Storage(tmp_path))
    for step in range(1, rows + 1):
        metrics.add({"step": step, "inner_steps_total": 3 * step, "loss": float(rows - step)})
    summary = loss_summary(metrics)
    curve = summary["loss_curve"]
    assert min(rows, 100) <= len(curve) <= 200
    assert curve[0][0] == 3
    assert [loss for _, loss in curve] == sorted((loss for _, loss in curve), reverse=True)
    assert summary["final_loss"] == curve[-1][1]
    assert np.mean([loss for _, loss in curve]) == pytest.approx((rows - 1) / 2, abs=5)


def test_a_point_of_the_cards_curve_is_the_mean_of_the_steps_up_to_the_next(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    for step in range(1, 401):
        metrics.add({"step": step, "inner_steps_total": step, "loss": 1.0 if step % 2 else 3.0})
    summary = loss_summary(metrics)
    assert summary["loss_curve"] == [[step, 2.0] for step in range(1, 401, 2)]
    assert summary["final_loss"] == 2.0


def test_steps_without_a_loss_are_left_out_of_the_curve(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    assert loss_summary(metrics) == {}
    for step, loss in enumerate((1.0, float("nan"), 0.5), 1):
        metrics.add({"step": step, "inner_steps_total": step, "loss": loss})
    assert loss_summary(metrics) == {"loss_curve": [[1, 1.0], [3, 0.5]], "final_loss": 0.5}


def test_a_loss_is_the_mean_of_the_tasks_that_are_left(tmp_path):
    metrics = Metrics(Storage(tmp_path))
    losses = np.array([[1.0, 3.0], [np.nan, 3.0], [np.nan, np.nan]])
    record(metrics, a_chunk(losses, 0), 0, a_problem(log_every=1))
    assert [row["loss"] for row in metrics.rows] == [2.0, 3.0, pytest.approx(np.nan, nan_ok=True)]
    assert [note(a_chunk(losses[:steps], 0)) for steps in (1, 2, 3)] == ["loss 2.000", "loss 3.000", "no task left"]
