"""The picture of the approximation error (Figure 3 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rayctsl.experiments.error.records import AXES, Axis, ErrorPoint, ErrorSweep, Summary
from rayctsl.plots import INK, OTHER_COLOURS, QUIET, plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("relu", "softplus", "relu, one direction", "softplus, one direction")
COLOURS = {name: OTHER_COLOURS[name.startswith("softplus")] for name in SERIES}  # lines tell the directions
LABELS = {"relu": "ReLU", "softplus": "Softplus"}
SYMBOLS = {"alpha": "inner learning rate alpha", "beta": "meta learning rate beta", "k": "trajectory length k"}


def draw_errors(summary: Summary, sweep: ErrorSweep) -> Figure:
    """log10 of the error's norm against alpha, beta and k, with 95 % intervals and the fitted powers."""
    figure, grid = plt.subplots(1, 3, figsize=(11.5, 4.3), layout="constrained", sharey=True)
    middle = {"alpha": f"alpha = {sweep.alpha:g}", "beta": f"beta = {sweep.beta:g}", "k": f"k = {sweep.length}"}
    for axes, axis in zip(grid, AXES, strict=True):
        for label in SERIES:
            points = [p for p in summary["log10_error"] if p["series"] == label and p["axis"] == axis]
            if len(points) > 1 or (points and "," not in label):  # the control varies k alone
                _series(axes, points, axis, label, summary["exponents"].get(f"{label}: {axis}"))
        axes.set_xscale("log")
        axes.set_xlabel(SYMBOLS[axis])
        axes.set_title(", ".join(text for key, text in middle.items() if key != axis), color=INK, fontsize=10)
        axes.legend(frameon=False, fontsize=8, loc="best")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    _reference(grid[2], summary)
    grid[0].set_ylabel("log10 of the error's norm")
    return figure


def _series(axes: Axes, points: list[ErrorPoint], axis: Axis, label: str, exponent: tuple[float, float] | None) -> None:
    at = np.array([point[axis] for point in points], float)
    means = np.array([point["mean"] for point in points])
    halves = np.nan_to_num([point["interval"] for point in points])
    name, _, rest = label.partition(", ")
    shown = f"{LABELS[name]}, {rest}" if rest else LABELS[name]
    if exponent:
        shown += f": ~ {axis}^{exponent[0]:.2f}"
    line, marker = ("--", "s") if rest else ("-", "o")
    axes.errorbar(
        at, means, halves, color=COLOURS[label], linestyle=line, marker=marker, markersize=4, capsize=3, label=shown
    )


def _reference(axes: Axes, summary: Summary) -> None:
    """A grey line with the bound's k^2, to compare slopes by eye."""
    points = [point for point in summary["log10_error"] if point["axis"] == "k"]
    ends = np.array([min(point["k"] for point in points), max(point["k"] for point in points)], float)
    lowest = min(point["mean"] for point in points)
    axes.plot(ends, lowest - 0.3 + 2 * np.log10(ends / ends[0]), color=QUIET, linestyle=":", label="slope of k^2")
    axes.legend(frameon=False, fontsize=8, loc="best")
