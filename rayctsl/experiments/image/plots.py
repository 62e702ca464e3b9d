"""The figures of an image experiment: losses, accuracy against inner steps, bars of all methods, accuracy against K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from rayctsl.experiments.image.statistics import AccuracyPoint, Interval
from rayctsl.plots import INK, label, legend_columns, style


def plot_losses(curves: Mapping[str, Sequence[np.ndarray]]) -> Any:
    """Task-average loss against inner steps: curves[method] holds an array [points, 2] for every training seed."""
    figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    for method, runs in curves.items():
        length = min(len(run) for run in runs)
        values = np.stack([run[:length, 1] for run in runs])
        at, mean, spread = runs[0][:length, 0], values.mean(0), values.std(0)
        colour, marker = style(method)
        axes.plot(at, mean, color=colour, marker=marker, markersize=4, linewidth=1.6, label=label(method))
        axes.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("cumulative inner steps, all tasks")
    axes.set_ylabel("training loss, mean over tasks and a trajectory")
    _finish(axes)
    axes.legend(frameon=False, fontsize=9, ncols=2)
    return figure


def plot_curves(curves: Mapping[str, Mapping[str, Sequence[AccuracyPoint]]]) -> Any:
    """Accuracy against inner steps, a panel a target: curves[target][method]."""
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.4 * rows + 0.6), layout="constrained", squeeze=False
    )
    for axes, (target, by_method) in zip(grid.flat, curves.items(), strict=False):
        for method, points in by_method.items():
            colour, marker = style(method)
            means = [point.accuracy[0] for point in points]
            halves = np.nan_to_num([point.accuracy[1] for point in points])
            at = [point.spent for point in points]
            line = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.5, "capsize": 2}
            axes.errorbar(at, means, halves, label=label(method), elinewidth=0.8, **line)
        axes.set_title(target, color=INK, fontsize=11)
        axes.set_xlabel("cumulative inner steps, all tasks")
        axes.set_ylabel("target accuracy, %")
        _finish(axes)
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=legend_columns(len(names)), frameon=False, fontsize=9
    )
    return figure


def plot_methods(table: Mapping[str, Mapping[str, Interval]]) -> Any:
    """Bars with intervals: the mean over targets of every method, sorted, then every target."""
    targets = list(next(iter(table.values())))
    order = sorted(table, key=lambda method: table[method][targets[-1]][0])
    columns = min(3, len(targets))
    rows = -(-len(targets) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.4 * rows), layout="constrained", squeeze=False)
    for axes, target in zip(grid.flat, [targets[-1], *targets[:-1]], strict=False):
        means = [table[method][target][0] for method in order]
        halves = np.nan_to_num([table[method][target][1] for method in order])
        colours = [style(method)[0] for method in order]
        axes.barh([label(method) for method in order], means, xerr=halves, color=colours, ecolor=INK, capsize=2)
        for place, (mean, half) in enumerate(zip(means, halves, strict=True)):
            axes.text(mean + half, place, f" {mean:.1f}", va="center", fontsize=8, color=INK)
        axes.set_xlim(0, 1.18 * max(mean + half for mean, half in zip(means, halves, strict=True)))
        axes.set_title("mean of the targets" if target == targets[-1] else target, color=INK, fontsize=11)
        axes.set_xlabel("target accuracy, %")
        _finish(axes, "x")
    for axes in grid.flat[len(targets) :]:
        axes.set_visible(False)
    return figure


def plot_lengths(curves: Mapping[str, Mapping[int, Interval]]) -> Any:
    """Mean target accuracy against K: curves[method][K]."""
    figure, axes = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    for place, (method, points) in enumerate(curves.items()):
        colour, marker = style(method)
        at = np.array(sorted(points), float) * 1.03 ** (place - (len(curves) - 1) / 2)  # side by side
        means, halves = zip(*(points[length] for length in sorted(points)), strict=True)
        look = {"color": colour, "marker": marker, "markersize": 5, "capsize": 3}
        axes.errorbar(at, means, np.nan_to_num(halves), label=label(method), **look)
    axes.set_xscale("log")
    known = sorted({length for points in curves.values() for length in points})
    axes.set_xticks(known, [f"{length:,}" for length in known])
    axes.minorticks_off()
    axes.set_xlabel("K, inner steps of a trajectory (equal inner steps in all)")
    axes.set_ylabel("mean target accuracy, %")
    _finish(axes)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _finish(axes: Any, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.25)
    axes.set_axisbelow(True)
    if grid == "y" and axes.get_xscale() == "linear":
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
