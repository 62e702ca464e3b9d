"""What the error experiment says: the statistics of its cells, and how the error grows with alpha, beta and k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from rayctsl.experiments.cells import Cell
from rayctsl.experiments.error.measure import ErrorArguments
from rayctsl.experiments.error.records import AXES, Axis, Bound, ErrorPoint, ErrorRow, ErrorSweep, Summary
from rayctsl.experiments.output import Output
from rayctsl.statistics import mean_and_interval


def rows_of(cells: Sequence[Cell[ErrorArguments]], results: Mapping[str, Mapping[str, float]]) -> list[ErrorRow]:
    return [
        ErrorRow(
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


def logs(rows: Sequence[ErrorRow]) -> list[float]:
    return [math.log10(row["error"]) for row in rows]


def slope(series: Sequence[Sequence[ErrorRow]], axis: Axis) -> tuple[float, float]:
    """The exponent of a power law along an axis: mean and 95 % interval over draws."""
    draws = sorted({row["draw"] for rows in series for row in rows})
    exponents = []
    for draw in draws:
        own = [row for rows in series for row in rows if row["draw"] == draw]
        exponents.append(float(np.polyfit(np.log10([row[axis] for row in own]), logs(own), 1)[0]))
    return mean_and_interval(exponents)


def fit_bound(series: Sequence[Sequence[ErrorRow]]) -> Bound:
    """Fit the shape of the bound with a, b >= 0 and relative errors."""
    from scipy.optimize import nnls

    first = series[0][0]
    k = np.array([rows[0]["k"] for rows in series], float)
    measured = np.array([10 ** np.mean(logs(rows)) for rows in series])
    terms = np.stack([first["beta"] * first["alpha"] * k**2, first["beta"] ** 2 * k], axis=1)
    (a, b), _ = nnls(terms / measured[:, None], np.ones(len(k)))
    misfit = float(np.abs(np.log10(terms @ (a, b) / measured)).max())
    return {"a": float(a), "b": float(b), "largest_log10_misfit": misfit}


def summarize(sweep: ErrorSweep, rows: Sequence[ErrorRow]) -> Summary:
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


def write_report(sweep: ErrorSweep, rows: Sequence[ErrorRow], out: Output) -> Summary:
    """Table, summary and figure of the finished cells."""
    from rayctsl.experiments.error.plots import draw_errors

    out.write_rows("error", rows)
    summary = summarize(sweep, rows)
    out.write_json("error", summary)
    out.write_figure("error", draw_errors(summary, sweep))
    return summary
