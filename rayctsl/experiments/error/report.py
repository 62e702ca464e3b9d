"""What the error experiment says: its cells, their statistics, and how the error grows with alpha, beta and k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypedDict

import numpy as np

from rayctsl.experiments.cells import Cell
from rayctsl.experiments.error.measure import ErrorArguments, Network
from rayctsl.experiments.output import Output
from rayctsl.statistics import mean_and_interval

Axis = Literal["alpha", "beta", "k"]
AXES: tuple[Axis, ...] = ("alpha", "beta", "k")


class Row(TypedDict):
    """The error of one draw."""

    activation: str
    alpha: float
    beta: float
    k: int
    draw: int
    one_direction: bool
    error: float


class OnAxis(TypedDict, total=False):
    """Where along its axis a point lies."""

    alpha: float
    beta: float
    k: float


class ErrorPoint(OnAxis):
    """The mean over draws of log10 of the error, with its 95 % interval."""

    series: str
    axis: Axis
    mean: float
    interval: float
    draws: int


class Bound(TypedDict):
    """|epsilon_k| = a beta alpha k^2 + b beta^2 k; `a` stands for h."""

    a: float
    b: float
    largest_log10_misfit: float


class Summary(TypedDict):
    log10_error: list[ErrorPoint]
    exponents: dict[str, tuple[float, float]]  # by series and axis: mean and 95 % interval
    bound: dict[str, Bound]


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

    def cells(self, network: Network) -> list[Cell[ErrorArguments]]:
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
                ErrorArguments(**network, activation=activation, alpha=alpha, beta=beta, lengths=list(lengths),
                               one_direction=one, draw=draw),
            )
            for draw in range(self.draws)
            for activation, alpha, beta, one, lengths in points
        ]  # fmt: skip

    def series(self, rows: Sequence[Row], axis: Axis, activation: str, one_direction: bool = False) -> list[list[Row]]:
        """The draws' rows along one axis, the other two held at the middle."""
        middle: dict[Axis, float] = {"alpha": self.alpha, "beta": self.beta, "k": self.length}
        del middle[axis]
        kind = [row for row in rows if (row["activation"], row["one_direction"]) == (activation, one_direction)]
        chosen = [row for row in kind if all(row[key] == value for key, value in middle.items())]
        values = sorted({row[axis] for row in chosen})
        return [[row for row in chosen if row[axis] == value] for value in values]


def rows_of(cells: Sequence[Cell[ErrorArguments]], results: Mapping[str, Mapping[str, float]]) -> list[Row]:
    return [
        Row(
            activation=cell.arguments["activation"],
            alpha=cell.arguments["alpha"],
            beta=cell.arguments["beta"],
            k=int(k),
            draw=cell.arguments["draw"],
            one_direction=cell.arguments["one_direction"],
            error=error,
        )
        for cell in cells
        if cell.name in results
        for k, error in results[cell.name].items()
    ]


def logs(rows: Sequence[Row]) -> list[float]:
    return [math.log10(row["error"]) for row in rows]


def slope(series: Sequence[Sequence[Row]], axis: Axis) -> tuple[float, float]:
    """The exponent of a power law along an axis: mean and 95 % interval over draws."""
    draws = sorted({row["draw"] for rows in series for row in rows})
    exponents = []
    for draw in draws:
        own = [row for rows in series for row in rows if row["draw"] == draw]
        exponents.append(float(np.polyfit(np.log10([row[axis] for row in own]), logs(own), 1)[0]))
    return mean_and_interval(exponents)


def fit_bound(series: Sequence[Sequence[Row]]) -> Bound:
    """Fit the shape of the bound with a, b >= 0 and relative errors."""
    from scipy.optimize import nnls

    first = series[0][0]
    k = np.array([rows[0]["k"] for rows in series], float)
    measured = np.array([10 ** np.mean(logs(rows)) for rows in series])
    terms = np.stack([first["beta"] * first["alpha"] * k**2, first["beta"] ** 2 * k], axis=1)
    (a, b), _ = nnls(terms / measured[:, None], np.ones(len(k)))
    misfit = float(np.abs(np.log10(terms @ (a, b) / measured)).max())
    return {"a": float(a), "b": float(b), "largest_log10_misfit": misfit}


def summarize(sweep: Sweep, rows: Sequence[Row]) -> Summary:
    """Every mean with its interval, the exponents along alpha, beta and k, and the fit of the bound."""
    summary = Summary(log10_error=[], exponents={}, bound={})
    for activation, one_direction in product(sweep.activations, (False, True)):
        label = f"{activation}, one direction" if one_direction else activation
        for axis in AXES:
            series = sweep.series(rows, axis, activation, one_direction)
            for draws in series:
                mean, half = mean_and_interval(logs(draws))
                point = ErrorPoint(series=label, axis=axis, mean=mean, interval=half, draws=len(draws))
                point[axis] = draws[0][axis]
                summary["log10_error"].append(point)
            if len(series) > 1:
                summary["exponents"][f"{label}: {axis}"] = slope(series, axis)
                if axis == "k":
                    summary["bound"][label] = fit_bound(series)
    return summary


def write_report(sweep: Sweep, rows: Sequence[Row], out: Output) -> Summary:
    """Table, summary and figure of the finished cells."""
    from rayctsl.experiments.error.plots import draw_errors

    out.write_rows("error", rows)
    summary = summarize(sweep, rows)
    out.write_json("error", summary)
    out.write_figure("error", draw_errors(summary, sweep))
    return summary
