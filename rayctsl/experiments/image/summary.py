"""An image experiment in numbers: what its finished cells say about every method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rayctsl.experiments.image.cells import Training
from rayctsl.experiments.image.records import Stages, Summary, TestRow
from rayctsl.experiments.image.statistics import (
    MEAN,
    AccuracyPoint,
    Interval,
    Speed,
    curve,
    difference,
    final_rows,
    speed,
    summarise,
)
from rayctsl.experiments.image.suite import Suite, kind_of

OURS, RIVAL = "shifting", "reptile"
Table = dict[str, dict[str, Interval]]  # by method, then by target; the last is the mean over targets


class Report:
    """The numbers of one suite, from its finished cells."""

    def __init__(self, suite: Suite, stages: Stages, rows: Sequence[TestRow]):
        self.suite, self.stages = suite, stages
        self.recipe = suite.config(next(iter(suite.methods)), {}).finetune
        self.rows = rows = [row for row in rows if row["steps"] == self.recipe.steps]
        self.size = self.recipe.train_size or 0
        finals = {method: final_rows(rows, method, suite.inner_steps, self.size) for method in suite.methods}
        self.finals = {method: found for method, found in finals.items() if found}
        self.names = {target: target.partition("@")[0] for target in suite.targets}

    def table(self) -> Table:
        columns = (*self.suite.targets, MEAN)
        found = {method: {of: summarise(rows, of) for of in columns} for method, rows in self.finals.items()}
        return {method: {of: cell for of, cell in row.items() if cell is not None} for method, row in found.items()}

    def differences(self) -> dict[str, Interval]:
        """Ours minus every other method, mean over targets, paired by training seed."""
        ours = self.finals.get(OURS, [])
        found = {method: difference(ours, rows) for method, rows in self.finals.items() if method != OURS}
        return {method: cell for method, cell in found.items() if cell is not None}

    def curves(self, target: str) -> dict[str, list[AccuracyPoint]]:
        """Accuracy against inner steps; every training begins at the random weights that scratch tests."""
        here = {method: self._curve(method, target) for method in self.finals if kind_of(method).trains}
        start = self._curve("scratch", target)
        return {method: [*start, *points] for method, points in here.items()}

    def _curve(self, method: str, target: str) -> list[AccuracyPoint]:
        return curve(self.rows, method, self.suite.inner_steps, self.size, target)

    def speed(self) -> Speed | None:
        curves = self.curves(MEAN)
        return speed(curves[OURS], curves[RIVAL]) if {OURS, RIVAL} <= set(curves) else None

    def lengths(self) -> dict[str, dict[int, Interval]]:
        """Mean target accuracy by method and K."""
        lengths = sorted({self.suite.inner_steps, *self.suite.lengths.inner_steps})
        found: dict[str, dict[int, Interval]] = {}
        for method in (name for name in self.suite.lengths.methods if name in self.finals):
            cells = {k: summarise(final_rows(self.rows, method, k, self.size)) for k in lengths}
            found[method] = {k: cell for k, cell in cells.items() if cell is not None}
        return found

    def losses(self) -> dict[str, list[np.ndarray]]:
        """Loss curves by method, one a seed; a single source has no task average to compare."""
        found: dict[str, list[np.ndarray]] = {}
        for method in self.finals:
            names = [Training(method, self.suite.inner_steps, seed).name for seed in range(self.suite.seeds)]
            runs = [np.array(self.stages.train[name]["losses"]) for name in names]
            kind = kind_of(method)
            if kind.trains and not kind.one_task and all(len(run) for run in runs):
                found[method] = runs
        return found

    def spent(self, method: str) -> dict[str, int]:
        """Gradients of one training, over all tasks."""
        points = self.stages.train[Training(method, self.suite.inner_steps, 0).name]["points"]
        return dict(points[-1]["spent"]) if points else {}

    def diverged(self) -> list[str]:
        return [name for name, result in self.stages.train.items() if result.get("diverged")]


def check_equal_steps(report: Report) -> None:
    """A comparison at unequal cost is none: every training must have taken the same inner steps over all tasks."""
    spent = {method: report.spent(method).get("inner") for method in report.finals if kind_of(method).trains}
    assert len(set(spent.values())) <= 1, f"methods spent different numbers of inner steps: {spent}"


def summary(report: Report) -> Summary:
    """Everything that the report says, as data."""
    reached = report.speed()
    return {
        "chosen": report.stages.chosen,
        "spent": {method: report.spent(method) for method in report.finals},
        "accuracy": report.table(),
        "shifting_minus": report.differences(),
        "accuracy_by_length": {m: {str(k): cell for k, cell in of.items()} for m, of in report.lengths().items()},
        "times_fewer_steps_than_reptile": reached.times_fewer if reached else None,
        "times_fewer_steps_interpolated": reached.times_fewer_interpolated if reached else None,
        "diverged": report.diverged(),
    }
