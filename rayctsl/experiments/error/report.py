"""What the error experiment says: its cells, their statistics, and how the error grows with alpha, beta and k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from rayctsl.experiments.cells import Cell
from rayctsl.experiments.output import Output
from rayctsl.statistics import mean_and_interval

Row = dict[str, Any]  # activation, alpha, beta, k, draw, one_direction, error


@dataclass(frozen=True)
class Sweep:
    """Values of alpha, beta and k, each varied alone around (alpha, beta, length)."""

    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    lengths: tuple[int, ...]
    alpha: float
    beta: float
    length: int
    activations: tuple[str, ...]
    draws: int

    def __post_init__(self) -> None:
        if min((*self.lengths, self.length)) < 2:
            raise ValueError("lengths start at 2: the first step comes before the first shift")
        if not all(0 < value < math.inf for value in (*self.alphas, *self.betas, self.alpha, self.beta)):
            raise ValueError("alphas and betas must be positive numbers")
        if self.draws < 1:
            raise ValueError(f"--draws must be at least 1 (got {self.draws})")

    def cells(self, common: dict[str, Any]) -> list[Cell]:
        """One cell for every draw of every point of the sweep; the middle has all lengths, the others one."""
        points: list[tuple[str, float, float, bool, tuple[int, ...]]] = []
        for activation in self.activations:
            full = tuple(sorted({*self.lengths, self.length}))
            points += [(activation, self.alpha, self.beta, one_direction, full) for one_direction in (False, True)]
            points += [(activation, a, self.beta, False, (self.length,)) for a in self.alphas if a != self.alpha]
            points += [(activation, self.alpha, b, False, (self.length,)) for b in self.betas if b != self.beta]
        return [
            Cell(
                f"{activation}-alpha{alpha:g}-beta{beta:g}{'-one-direction' if one else ''}-draw{draw}",
                {**common, "activation": activation, "alpha": alpha, "beta": beta, "lengths": list(lengths),
                 "one_direction": one, "draw": draw},
            )
            for draw in range(self.draws)
            for activation, alpha, beta, one, lengths in points
        ]  # fmt: skip

    def series(self, rows: Sequence[Row], axis: str, activation: str, one_direction: bool = False) -> list[list[Row]]:
        """The draws' rows along one axis (`alpha`, `beta` or `k`), the other two held at the middle."""
        middle = {"alpha": self.alpha, "beta": self.beta, "k": self.length}
        del middle[axis]
        middle.update({"activation": activation, "one_direction": one_direction})  # type: ignore[dict-item]
        chosen = [row for row in rows if all(row[key] == value for key, value in middle.items())]
        values = sorted({row[axis] for row in chosen})
        return [[row for row in chosen if row[axis] == value] for value in values]


def rows_of(cells: Sequence[Cell], results: dict[str, Any]) -> list[Row]:
    keys = ("activation", "alpha", "beta", "draw", "one_direction")
    return [
        {**{key: cell.arguments[key] for key in keys}, "k": int(k), "error": error}
        for cell in cells
        if cell.name in results
        for k, error in results[cell.name].items()
    ]


def logs(rows: Sequence[Row]) -> list[float]:
    return [math.log10(row["error"]) for row in rows]


def slope(series: Sequence[Sequence[Row]], axis: str) -> tuple[float, float]:
    """The exponent of a power law along an axis: mean and 95 % interval over draws."""
    draws = sorted({row["draw"] for rows in series for row in rows})
    exponents = []
    for draw in draws:
        own = [row for rows in series for row in rows if row["draw"] == draw]
        exponents.append(float(np.polyfit(np.log10([row[axis] for row in own]), logs(own), 1)[0]))
    return mean_and_interval(exponents)


def fit_bound(series: Sequence[Sequence[Row]]) -> dict[str, float]:
    """Fit |epsilon_k| = a beta alpha k^2 + b beta^2 k, the shape of the bound, with a, b >= 0 and relative errors.

    Returns a (which stands for h), b, and the largest distance of a mean from the fit in log10.
    """
    from scipy.optimize import nnls

    first = series[0][0]
    k = np.array([rows[0]["k"] for rows in series], float)
    measured = np.array([10 ** np.mean(logs(rows)) for rows in series])
    terms = np.stack([first["beta"] * first["alpha"] * k**2, first["beta"] ** 2 * k], axis=1)
    (a, b), _ = nnls(terms / measured[:, None], np.ones(len(k)))
    misfit = float(np.abs(np.log10(terms @ (a, b) / measured)).max())
    return {"a": float(a), "b": float(b), "largest_log10_misfit": misfit}


def summarize(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """Every mean with its interval, the exponents along alpha, beta and k, and the fit of the bound."""
    summary: dict[str, Any] = {"log10_error": [], "exponents": {}, "bound": {}}
    for activation, one_direction in product(sweep.activations, (False, True)):
        label = f"{activation}, one direction" if one_direction else activation
        for axis in ("alpha", "beta", "k"):
            series = sweep.series(rows, axis, activation, one_direction)
            for point in series:
                mean, half = mean_and_interval(logs(point))
                summary["log10_error"].append({"series": label, "axis": axis, axis: point[0][axis], "mean": mean,
                                               "interval": half, "draws": len(point)})  # fmt: skip
            if len(series) > 1:
                summary["exponents"][f"{label}: {axis}"] = slope(series, axis)
                if axis == "k":
                    summary["bound"][label] = fit_bound(series)
    return summary


def write_report(sweep: Sweep, rows: Sequence[Row], out: Output) -> dict[str, Any]:
    """Table, summary and figure of the finished cells."""
    from rayctsl.experiments.error.plots import draw_errors

    out.write_table("error", {key: [row[key] for row in rows] for key in rows[0]})
    summary = summarize(sweep, rows)
    out.write_json("error", summary)
    out.write_figure("error", draw_errors(summary, sweep))
    return summary
