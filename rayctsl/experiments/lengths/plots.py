"""The figures of cost and of fine-tuning; colours are those of every figure, the dashes tell K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rayctsl.experiments.image.statistics import Interval
from rayctsl.experiments.lengths.tables import ALL_IMAGES, Cost, Which
from rayctsl.plots import label, legend_columns, plt, style

ACCOUNTS = {  # attribute of Cost -> the axis
    "inner_steps": "inner steps over all tasks (the paper's account)",
    "seconds": "seconds on as many learners as tasks",
    "gradients": "gradients",
}
DASHES = {10: ":", 100: "-", 400: "-.", 1000: "--"}


def plot_costs(curves: Mapping[Which, Sequence[tuple[Cost, Interval]]]) -> Any:
    """Accuracy against three accounts of cost."""
    figure, panels = plt.subplots(1, 3, figsize=(13.5, 4.8), layout="constrained", sharey=True)
    for axes, (account, words) in zip(panels, ACCOUNTS.items(), strict=True):
        for of, found in curves.items():
            _line(axes, [getattr(cost, account) for cost, _ in found], [accuracy for _, accuracy in found], of)
        axes.set_xlabel(words)
        axes.xaxis.set_major_locator(plt.MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _finish(figure, panels, panels[0])
    return figure


def plot_finetuning(
    steps: Mapping[Which, Mapping[int, Interval]], sizes: Mapping[Which, Mapping[int, Interval]]
) -> Any:
    """Accuracy against the length of fine-tuning and against the number of target images."""
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.8), layout="constrained", sharey=True)
    shown = ((steps, "steps of fine-tuning"), (sizes, "training images of the target"))
    for axes, (curves, words) in zip(panels, shown, strict=True):
        values = sorted({value for cells in curves.values() for value in cells})
        # How many images are all differs from target to target: they stand last, without a number.
        places = {value: 3 * max(values) if value == ALL_IMAGES else value for value in values}
        for of, cells in curves.items():
            order = sorted(cells, key=places.__getitem__)
            _line(axes, [places[value] for value in order], [cells[value] for value in order], of)
        axes.set_xscale("log")
        axes.set_xticks(list(places.values()), [f"{value:,}" if value else "all" for value in places])
        axes.minorticks_off()
        axes.set_xlabel(words)
    _finish(figure, panels, panels[0] if steps else panels[1])
    return figure


def _line(axes: Any, at: Sequence[float], accuracies: Sequence[Interval], of: Which) -> None:
    method, length = of
    colour, marker = style(method)
    means, halves = [mean for mean, _ in accuracies], np.nan_to_num([half for _, half in accuracies])
    look = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.5, "capsize": 2, "elinewidth": 0.8}
    axes.errorbar(at, means, halves, label=f"{label(method)}, K {length:,}", linestyle=DASHES.get(length, "-"), **look)


def _finish(figure: Any, panels: Sequence[Any], named: Any) -> None:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    panels[0].set_ylabel("mean target accuracy, %")
    handles, names = named.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=legend_columns(len(names)), frameon=False, fontsize=9
    )
