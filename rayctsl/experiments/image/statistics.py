"""What the fine-tunings of an image experiment say: means with intervals over training seeds, differences, speed.

A training seed counts once: its fine-tunings are averaged before any interval is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rayctsl.experiments.image.records import TestRow
from rayctsl.statistics import mean_and_interval

Interval = tuple[float, float]  # mean and half width of the 95 % interval, NaN with one seed
MEAN = "mean"  # over the targets, where a target's name may stand


@dataclass(frozen=True)
class AccuracyPoint:
    """Accuracy after some inner steps, over all tasks. Example: AccuracyPoint(spent=9600, accuracy=(29.4, 1.1))"""

    spent: int
    accuracy: Interval


def by_seed(rows: Iterable[TestRow], target: str = MEAN) -> dict[int, float]:
    """Accuracy of every training seed, on one target or averaged over targets that all have been tested."""
    cells: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["seed"]][row["target"]].append(row["accuracy"])
    if target != MEAN:
        return {seed: float(np.mean(of[target])) for seed, of in sorted(cells.items()) if target in of}
    complete = max((len(of) for of in cells.values()), default=0)
    means = {seed: [np.mean(values) for values in of.values()] for seed, of in sorted(cells.items())}
    return {seed: float(np.mean(values)) for seed, values in means.items() if len(values) == complete}


def summarise(rows: Iterable[TestRow], target: str = MEAN) -> Interval | None:
    values = list(by_seed(rows, target).values())
    return mean_and_interval(values) if values else None


def final_rows(rows: Iterable[TestRow], method: str, inner_steps: int, train_size: int) -> list[TestRow]:
    """The fine-tunings of a method's final phi."""
    wanted = (method, inner_steps, train_size)
    return [row for row in rows if row["final"] and (row["method"], row["inner_steps"], row["train_size"]) == wanted]


def difference(ours: Sequence[TestRow], theirs: Sequence[TestRow], target: str = MEAN) -> Interval | None:
    """Ours minus theirs, seed by seed: equal seeds start from one phi and see the same batches."""
    left, right = by_seed(ours, target), by_seed(theirs, target)
    common = sorted(set(left) & set(right))
    return mean_and_interval([left[seed] - right[seed] for seed in common]) if common else None


def curve(
    rows: Iterable[TestRow], method: str, inner_steps: int, train_size: int, target: str = MEAN
) -> list[AccuracyPoint]:
    """Accuracy against inner steps: the random start, the checkpoints, the end."""
    groups: dict[int, list[TestRow]] = defaultdict(list)
    for row in rows:
        if row["inner_steps"] == inner_steps and row["train_size"] == train_size and row["method"] == method:
            groups[row["spent"]].append(row)
    points = [(spent, summarise(of, target)) for spent, of in sorted(groups.items())]
    return [AccuracyPoint(spent, accuracy) for spent, accuracy in points if accuracy is not None]


@dataclass(frozen=True)
class Speed:
    """How much sooner a method is as good as a rival ever gets."""

    accuracy: float  # the rival's final one
    rival_spent: int
    spent: int | None  # the first tested point that is as good; None: never
    crossing: float | None  # the same on straight lines between the tested points

    @property
    def times_fewer(self) -> float | None:
        return self.rival_spent / self.spent if self.spent else None

    @property
    def times_fewer_interpolated(self) -> float | None:
        return self.rival_spent / self.crossing if self.crossing else None


def speed(ours: Sequence[AccuracyPoint], theirs: Sequence[AccuracyPoint]) -> Speed:
    """Inner steps until our curve reaches the end of theirs."""
    goal, spent = theirs[-1].accuracy[0], theirs[-1].spent
    for before, after in zip([ours[0], *ours], ours, strict=False):
        low, high = before.accuracy[0], after.accuracy[0]
        if high >= goal and after.spent > 0:
            share = (goal - low) / (high - low) if high > low else 1.0
            crossing = before.spent + min(max(share, 0.0), 1.0) * (after.spent - before.spent)
            return Speed(goal, spent, after.spent, crossing or float(after.spent))
    return Speed(goal, spent, None, None)
