"""The ImageNet experiment in numbers: Table 1, and what is gained over ImageNet's weights against the size of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from rayctsl.experiments.image import plots
from rayctsl.experiments.image.records import NumberedRow, Stages
from rayctsl.experiments.image.statistics import MEAN, Interval, difference, final_rows
from rayctsl.experiments.image.suite import Suite
from rayctsl.experiments.image.summary import Report, check_equal_steps, summary
from rayctsl.experiments.image.text import format_table, search_lines
from rayctsl.experiments.output import Output
from rayctsl.plots import INK, QUIET, label, style

BASE = "scratch"  # no meta-training: ImageNet's weights as they are
Gains = dict[str, dict[int, Interval]]  # by method, then by number of training images


def write_report(suite: Suite, stages: Stages, rows: Sequence[NumberedRow], out: Output) -> str:
    """Write tables and figures; returns Table 1 as text."""
    report = Report(suite, stages, rows)
    check_equal_steps(report)
    gains = {target: gains_over_base(report, target) for target in (*suite.targets, MEAN)}
    out.write_rows("imagenet_results", rows)
    out.write_json("imagenet_summary", {**summary(report), "gain_over_imagenet": gains})
    named = {report.names.get(of, "mean of the targets"): found for of, found in gains.items()}
    out.write_figure("imagenet_gains", plot_gains(named))
    if losses := report.losses():
        out.write_figure("imagenet_losses", plots.plot_losses(losses))
    table = format_table(report).replace(f"| {BASE} |", "| none (ImageNet's weights) |")
    out.write_text("imagenet_report.md", _markdown(report, table))
    return table


def gains_over_base(report: Report, target: str) -> Gains:
    """Accuracy minus that of ImageNet's weights on the same images and batches, by method and number of images."""
    suite, found = report.suite, Gains()
    for method in (name for name in report.finals if name != BASE):
        for size in sorted({report.size, *suite.sizes}):
            ours, base = (final_rows(report.rows, name, suite.inner_steps, size) for name in (method, BASE))
            gain = difference(ours, base, target)
            if gain is not None:
                found.setdefault(method, {})[size] = gain
    return found


def plot_gains(gains: Mapping[str, Gains]) -> Figure:
    """A panel a target: points gained over ImageNet's weights against the number of training images."""
    columns_ = min(5, len(gains))
    rows = -(-len(gains) // columns_)
    figure, grid = plt.subplots(
        rows, columns_, figsize=(3.4 * columns_, 3 * rows + 0.5), layout="constrained", squeeze=False
    )
    for axes, (target, by_method) in zip(grid.flat, gains.items(), strict=False):
        for place, (method, points) in enumerate(by_method.items()):
            colour, marker = style(method)
            at = np.array(sorted(points), float) * 1.04 ** (place - (len(by_method) - 1) / 2)  # side by side
            means, halves = zip(*(points[size] for size in sorted(points)), strict=True)
            look = {"color": colour, "marker": marker, "markersize": 4, "capsize": 2, "label": label(method)}
            axes.errorbar(at, means, np.nan_to_num(halves), **look)
        sizes = sorted({size for points in by_method.values() for size in points})
        axes.axhline(0, color=QUIET, linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.minorticks_off()
        axes.set_title(target, color=INK, fontsize=11)
        axes.set_xlabel("training images")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    for row in grid:
        row[0].set_ylabel("accuracy gained, points")
    for axes in grid.flat[len(gains) :]:
        axes.set_visible(False)
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _markdown(report: Report, table: str) -> str:
    suite, recipe = report.suite, report.recipe
    base = suite.config(BASE, {})
    spent = max(report.spent(method).get("inner", 0) for method in report.finals)
    lines = [
        f"{base.model.name} from ImageNet's weights, {len(suite.sources)} splits, K {base.inner_steps}, "
        f"M {base.trajectories}: {spent:,} inner steps for every method. Meta-test: {report.size:,} training images, "
        f"{recipe.steps} steps, batch {recipe.batch_size}, rate {recipe.alpha:g}. Mean and 95 % interval over "
        f"{suite.seeds} training seeds; the last column is paired by seed.",
        "",
        table,
        "",
        *search_lines(report),
        "",
        "![Accuracy gained over ImageNet's weights](imagenet_gains.png)",
        "",
        "![Task-average training loss](imagenet_losses.png)",
        "",
    ]
    return "\n".join(lines)
