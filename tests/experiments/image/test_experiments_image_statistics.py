"""The statistics of an image experiment, against numbers worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.experiments.image.compute import _losses
from rayctsl.experiments.image.statistics import (
    MEAN,
    AccuracyPoint,
    by_seed,
    curve,
    difference,
    final_rows,
    speed,
    summarise,
)
from rayctsl.experiments.image.text import at_edge


def row(seed, target, accuracy, **other):
    base = {"method": "shifting", "inner_steps": 10, "spent": 100, "final": True, "train_size": 0, "test_seed": seed}
    return {**base, "seed": seed, "target": target, "accuracy": accuracy, **other}


def test_a_seed_counts_once_however_often_it_was_tested():
    rows = [row(0, "a", 10), row(0, "a", 20), row(0, "b", 35), row(1, "a", 25), row(1, "b", 35)]
    assert by_seed(rows, "a") == {0: 15, 1: 25}
    assert by_seed(rows) == {0: 25, 1: 30}
    mean, half = summarise(rows)
    assert mean == 27.5
    assert half == pytest.approx(12.7062 * 3.53553 / math.sqrt(2), rel=1e-4)


def test_a_seed_without_all_targets_has_no_mean_over_targets():
    rows = [row(0, "a", 10), row(0, "b", 30), row(1, "a", 99)]
    assert by_seed(rows) == {0: 20}
    assert math.isnan(summarise(rows)[1])
    assert summarise([], "a") is None
    assert summarise(rows, "c") is None


def test_differences_are_paired_by_seed():
    ours = [row(0, "a", 10), row(1, "a", 50), row(2, "a", 99)]
    theirs = [row(0, "a", 8), row(1, "a", 48)]
    mean, half = difference(ours, theirs)
    assert (mean, half) == (2, 0)
    assert difference(ours, []) is None
    late = [row(1, "a", 50), row(2, "a", 90)]  # the first seed is missing: pairs by position would be wrong
    assert difference(late, [row(0, "a", 10), row(1, "a", 48), row(2, "a", 88)]) == (2, 0)


def test_final_rows_are_of_one_method_length_and_size():
    odd = {"method": "mtl"}, {"inner_steps": 5}, {"final": False}, {"train_size": 7}
    rows = [row(0, "a", 10), *(row(0, "a", 0, **other) for other in odd)]
    assert final_rows(rows, "shifting", 10, 0) == rows[:1]


def test_curves_go_from_the_first_to_the_last_point():
    rows = [row(0, "a", 30, spent=200), row(0, "a", 10, spent=100, final=False), row(1, "a", 40, spent=200)]
    points = curve(rows, "shifting", 10, 0, MEAN)
    assert [(point.spent, point.accuracy[0]) for point in points] == [(100, 10), (200, 35)]


def points(*pairs):
    return [AccuracyPoint(spent, (accuracy, 0.0)) for spent, accuracy in pairs]


def test_speed_is_where_our_curve_reaches_the_end_of_theirs():
    reached = speed(points((0, 5), (100, 15), (200, 25), (800, 30)), points((0, 5), (800, 20)))
    assert (reached.accuracy, reached.rival_spent, reached.spent, reached.crossing) == (20, 800, 200, 150)
    assert (reached.times_fewer, reached.times_fewer_interpolated) == (4, pytest.approx(800 / 150))


def test_speed_without_a_crossing():
    reached = speed(points((0, 5), (800, 19)), points((0, 5), (800, 20)))
    assert (reached.spent, reached.times_fewer, reached.times_fewer_interpolated) == (None, None, None)


def test_speed_where_the_rival_never_beats_the_start():
    reached = speed(points((0, 5), (100, 15)), points((0, 5), (800, 4)))
    assert (reached.spent, reached.crossing, reached.times_fewer) == (100, 100, 8)


def test_a_choice_at_the_edge_of_its_grid_is_told():
    candidates = [{"alpha": alpha, "beta": beta, "source": "a"} for alpha in (1, 2) for beta in (3, 4, 5)]
    assert [at_edge(candidate, candidates) for candidate in candidates] == [True, False, True, True, False, True]


def test_a_trainings_losses_are_the_means_of_its_trajectories():
    rows = [{"step": step, "inner_steps_total": 3 * step, "loss": float(step)} for step in range(1, 5)]
    run: Any = SimpleNamespace(config=SimpleNamespace(inner_steps=2), total=4, metrics=SimpleNamespace(rows=rows))
    assert _losses(run) == [[6.0, 1.5], [12.0, 3.5]]
