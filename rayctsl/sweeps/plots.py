"""The pictures of a sweep: accuracy against beta, and all dimensions side by side."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from rayctsl.plots import INK, QUIET, label, style
from rayctsl.statistics import mean_and_interval
from rayctsl.storage import Storage
from rayctsl.sweeps.records import METRIC
from rayctsl.sweeps.report import MEASURED

Rows = Sequence[Mapping[str, Any]]


def plot_sweep(run: Storage, rows: Rows) -> None:
    """Write plots/beta.png and plots/coordinates.png, as far as there is something to see."""
    scored = [row for row in rows if row[METRIC] is not None and row["status"] != "failed"]
    if not scored:
        return
    if any(row["method.beta"] for row in scored):
        _write(run, "plots/beta.png", plot_betas(rows))
    _write(run, "plots/coordinates.png", plot_coordinates(scored))


def plot_betas(rows: Rows) -> Any:
    """Accuracy against beta, a panel per K and a line per method; a cross on the axis is a trial that failed.

    Several trials of one beta (seeds, say) are drawn as their mean with its 95 % interval.
    """
    rows = [row for row in rows if row["method.beta"]]
    methods, panels = _distinct(rows, "method.name"), _distinct(rows, "inner_steps")
    size = (max(6.0, 3.4 * len(panels) + 1.8), 4.2)
    figure, grid = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axes, steps in zip(grid[0], panels, strict=True):
        for method in methods:
            here = [row for row in rows if row["inner_steps"] == steps and row["method.name"] == method]
            _draw_betas(axes, here, method)
        _scale_betas(axes, _distinct(rows, "method.beta"))
        axes.set_title(f"K = {steps}", color=INK)
        axes.set_xlabel("beta")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    grid[0][0].set_ylabel("validation accuracy, %")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right upper")
    return figure


def _scale_betas(axes: Any, betas: list[float]) -> None:
    """A logarithmic axis whose labels do not run into each other: 1, 2, 5 of each decade, or the decades alone."""
    axes.set_xscale("log")
    narrow = betas[-1] / betas[0] <= 100
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_betas(axes: Any, rows: Rows, method: str) -> None:
    colour, marker = style(method)
    means, halves = [], []
    for beta in _distinct(rows, "method.beta"):
        scores = [row[METRIC] for row in rows if row["method.beta"] == beta and row["status"] == "finished"]
        if scores:
            mean, half = mean_and_interval(scores)
            means.append((beta, mean))
            halves.append(half)
    line = {"color": colour, "marker": marker, "markersize": 5, "capsize": 3, "label": label(method)}
    axes.errorbar(*zip(*means, strict=True) if means else ([], []), yerr=halves, **line)
    stopped = [(row["method.beta"], row[METRIC]) for row in rows if row["status"] == "stopped" and row[METRIC]]
    if stopped:
        axes.plot(*zip(*stopped, strict=True), color=colour, marker=marker, markerfacecolor="none", linestyle="none")
    failed = [row["method.beta"] for row in rows if row["status"] == "failed"]
    at_the_bottom = axes.get_xaxis_transform()  # x in data, y in parts of the axis
    axes.plot(failed, [0.02] * len(failed), color=colour, marker="x", linestyle="none", transform=at_the_bottom)


def plot_coordinates(rows: Rows) -> Any:
    """A line per trial through its value on every searched dimension, coloured by accuracy; dashed when stopped."""
    dimensions = [key for key in rows[0] if key not in (*MEASURED, "trajectories") and len(_distinct(rows, key)) > 1]
    keys = [*dimensions, METRIC]
    scales = {key: _Scale(rows, key) for key in keys}
    scores = [row[METRIC] for row in rows]
    shade = matplotlib.colors.Normalize(min(scores), max(scores) if max(scores) > min(scores) else min(scores) + 1)
    figure, axes = plt.subplots(figsize=(max(6.0, 1.9 * len(keys)), 4.4), layout="constrained")
    for row in sorted(rows, key=lambda row: row[METRIC]):
        heights = [scales[key](row[key]) for key in keys]
        style = "--" if row["status"] == "stopped" else "-"
        axes.plot(heights, color=matplotlib.colormaps["viridis"](shade(row[METRIC])), linestyle=style, alpha=0.8)
    for place, key in enumerate(keys):
        axes.axvline(place, color=QUIET, linewidth=1)
        for height, text in scales[key].ticks():
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
            axes.text(place + 0.03, height, text, fontsize=8, color=INK, va="center", bbox=box)
    axes.set_xticks(range(len(keys)), ["accuracy, %" if key == METRIC else key for key in keys])
    axes.set_yticks([])
    axes.set_xlim(-0.1, len(keys) - 0.6)
    axes.spines[:].set_visible(False)
    return figure


class _Scale:
    """Places the values of one dimension between 0 and 1: numbers by size or magnitude, words in turn.

    A trial that has no value, such as another method's option, is placed below them.
    """

    def __init__(self, rows: Rows, key: str):
        self.partial = any(row[key] is None for row in rows)
        self.values = [value for value in _distinct(rows, key) if value is not None]
        self.numeric = all(isinstance(value, (int, float)) for value in self.values)
        self.logarithmic = self.numeric and self.values[0] > 0 and self.values[-1] / self.values[0] >= 20

    def __call__(self, value: Any) -> float:
        if value is None:
            return -0.1
        if not self.numeric:
            return self.values.index(value) / max(1, len(self.values) - 1)
        low, high, at = (math.log(v) if self.logarithmic else v for v in (self.values[0], self.values[-1], value))
        return (at - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        shown = self.values if len(self.values) <= 6 or not self.numeric else [self.values[0], self.values[-1]]
        places = [(self(value), f"{value:.3g}" if isinstance(value, float) else str(value)) for value in shown]
        return [(self(None), "-"), *places] if self.partial else places


def _distinct(rows: Rows, key: str) -> list[Any]:
    values = {row[key] for row in rows}
    return sorted(values, key=lambda value: (value is not None, isinstance(value, str), value))


def _write(run: Storage, name: str, figure: Any) -> None:
    sink = io.BytesIO()
    figure.savefig(sink, dpi=130, format="png")
    plt.close(figure)
    run.write(name, sink.getvalue())
