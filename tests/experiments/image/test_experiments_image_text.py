"""What an image experiment says in words: its table, and how many times fewer steps it took."""

from __future__ import annotations

from typing import Any

from rayctsl.experiments.image.records import Stages
from rayctsl.experiments.image.statistics import AccuracyPoint, speed
from rayctsl.experiments.image.suite import load_suite
from rayctsl.experiments.image.summary import Report
from rayctsl.experiments.image.text import _speed_lines, format_table


def rows_of(method: str, target: str, *accuracies: float) -> list[Any]:
    """A fine-tuning of the end of every training seed."""
    row = {"method": method, "target": target, "inner_steps": 4, "spent": 48, "final": True, "train_size": 0}
    return [{**row, "steps": 4, "seed": seed, "accuracy": each} for seed, each in enumerate(accuracies)]


def test_the_best_method_comes_first_and_ours_is_compared_with_each_by_seed(tiny):
    methods = {"scratch": {}, "shifting": {"beta": 1}, "reptile": {"beta": 1}}
    suite = load_suite(tiny(methods=methods, lengths={}))
    rows = [
        *rows_of("scratch", "rings", 10, 10),
        *rows_of("scratch", "waves", 12, 12),
        *rows_of("shifting", "rings", 40, 42),
        *rows_of("shifting", "waves", 20, 22),
        *rows_of("reptile", "rings", 50, 52),
        *rows_of("reptile", "waves", 30, 32),
    ]
    # Two numbers at a distance of 2 have a standard error of 1, and 12.7 of those are the interval.
    assert format_table(Report(suite, Stages({}, {}, {}), rows)).splitlines() == [
        "| method | rings | waves | mean | shifting minus it |",
        "|---|---|---|---|---|",
        "| reptile | 51.0 ± 12.7 | 31.0 ± 12.7 | 41.0 ± 12.7 | -10.0 ± 0.0 |",
        "| shifting | 41.0 ± 12.7 | 21.0 ± 12.7 | 31.0 ± 12.7 |  |",
        "| scratch | 10.0 ± 0.0 | 12.0 ± 0.0 | 11.0 ± 0.0 | +20.0 ± 12.7 |",
    ]


def test_it_is_said_how_many_times_fewer_steps_shifting_took():
    ours = [AccuracyPoint(spent, (accuracy, 0.0)) for spent, accuracy in ((0, 5), (100, 15), (200, 25))]
    rival = [AccuracyPoint(0, (5.0, 0.0)), AccuracyPoint(1200, (20.0, 0.0))]
    (said, _) = _speed_lines(speed(ours, rival))
    assert "as good as Reptile at its end (20.0 %, 1,200 inner steps) after 200 inner steps" in said
    assert "(6.0 times fewer; 8.0 times on straight lines" in said
    (said, _) = _speed_lines(speed(ours[:2], rival))
    assert said == "Shifting does not reach Reptile's final mean accuracy of 20.0 %."
