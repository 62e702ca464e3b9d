"""The pictures of a run: loss curves and accuracy bars, drawn without a display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from rayctsl.config import Config
from rayctsl.statistics import mean_and_interval

if TYPE_CHECKING:
    from rayctsl.learning.finetune import FinetuneResult

INK, ACCENT, QUIET = "#1f2933", "#c2410c", "#8aa0b4"
STYLES: dict[str, tuple[str, str]] = {  # method -> colour and marker, the same in every figure
    "shifting": (ACCENT, "o"),
    "reptile": ("#1d4ed8", "s"),
    "leap": ("#0f766e", "^"),
    "fomaml": ("#7c3aed", "v"),
    "mtl": ("#a16207", "D"),
    "single": ("#be185d", "P"),
    "scratch": (QUIET, "x"),
    "no_shifting": ("#0891b2", "<"),
    "random_shifting": ("#65a30d", ">"),
    "fomaml_pp": ("#9333ea", "1"),
    "fomaml_shifting": ("#ea580c", "2"),
    "imaml": ("#475569", "3"),
    "anil": ("#6b7280", "4"),
    "accurate": ("#15803d", "*"),
}
# What is no method (a variant, an optimizer, an activation) takes one of these.
OTHER_COLOURS = ("#f59e0b", "#0ea5e9", "#84cc16", "#d946ef", "#14b8a6", "#f43f5e", "#78716c", "#6366f1")
NAMES = {"reptile": "Reptile", "leap": "Leap", "mtl": "multi-task", "single": "single source", "fomaml_pp": "FOMAML++"}
NAMES |= {"fomaml": "FOMAML", "imaml": "iMAML", "anil": "ANIL"}


def style(method: str) -> tuple[str, str]:
    """A method's colour and marker; a variant (`shifting+pull`) has its method's marker and a colour of its own."""
    base, plus, variant = method.partition("+")
    colour, marker = STYLES[base]
    return (OTHER_COLOURS[sum(variant.encode()) % len(OTHER_COLOURS)], marker) if plus else (colour, marker)


def label(method: str) -> str:
    """A method's name in a figure."""
    base, plus, variant = method.partition("+")
    return (NAMES.get(base, base) + (f", {variant}" if plus else "")).replace("_", " ")


def legend_columns(entries: int) -> int:
    """Columns of a legend below a figure: rows of up to six, none of them nearly empty."""
    return math.ceil(entries / max(1, math.ceil(entries / 6))) or 1


def plot_losses(
    rows: Sequence[Mapping[str, Any]], curves: Mapping[str, Sequence[float]], config: Config, target: IO[bytes] | str
) -> None:
    """Every task's loss (thin) and their mean (thick) against cumulative inner steps, averaged in up to 150 bins."""
    steps = np.array([row["inner_steps_total"] for row in rows], float)
    bins = np.array_split(np.arange(len(rows)), min(len(rows), 150))

    def binned(losses: Sequence[float]) -> np.ndarray:
        values = np.array(losses, float)
        return np.array([values[chosen].mean() for chosen in bins])

    at = np.array([steps[chosen].mean() for chosen in bins])
    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    # Two thirds of the time that a layout takes which is searched for.
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.13, top=0.92)
    colours = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.85, len(curves)))
    for (name, losses), colour in zip(curves.items(), colours, strict=True):
        axes.plot(at, binned(losses), color=colour, linewidth=1, alpha=0.7, label=name)
    mean = [row["loss"] for row in rows]
    axes.plot(at, binned(mean), color=ACCENT, linewidth=2.4, label="task average")
    method = config.method
    axes.set_title(f"{method.name}, beta {method.beta:g}, K {config.inner_steps}, M {config.trajectories}", color=INK)
    axes.set_xlabel("cumulative inner steps, all tasks")
    axes.set_ylabel("training loss")
    _finish(figure, axes, target)


def plot_comparison(
    accuracies: Mapping[str, Mapping[str, tuple[float, float]]], target: IO[bytes] | str, title: str = ""
) -> None:
    """Grouped bars with intervals: accuracies[initialization][dataset] = (mean, interval) in percent."""
    datasets = list(next(iter(accuracies.values())))
    figure, axes = plt.subplots(figsize=(max(6.5, 1.5 * len(datasets)), 4.2), layout="constrained")
    width = 0.8 / len(accuracies)
    shades = [QUIET, ACCENT, *matplotlib.colormaps["viridis"](np.linspace(0, 0.9, max(len(accuracies) - 2, 1)))]
    for place, (name, cells) in enumerate(accuracies.items()):
        at = np.arange(len(datasets)) + (place - (len(accuracies) - 1) / 2) * width
        means = [cells[dataset][0] for dataset in datasets]
        errors = [np.nan_to_num(cells[dataset][1]) for dataset in datasets]
        bars = axes.bar(at, means, width * 0.92, yerr=errors, label=name, color=shades[place], capsize=3, ecolor=INK)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8, color=INK)
    axes.set_xticks(range(len(datasets)), datasets)
    axes.set_ylabel("test accuracy after fine-tuning, %")
    axes.set_title(title, color=INK)
    _finish(figure, axes, target)


def plot_finetune(result: FinetuneResult, target: IO[bytes] | str) -> None:
    """Test accuracy against fine-tuning steps: every seed (thin) and their mean (thick)."""
    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    steps = [point.step for point in result.runs[0].curve]
    curves = np.array([[100 * point.accuracy for point in run.curve] for run in result.runs])
    axes.plot(steps, curves.T, color=QUIET, linewidth=1)
    if len(steps) == 1:  # a line through one point is not to be seen
        axes.plot(steps * len(curves), curves[:, 0], color=QUIET, marker="o", linestyle="none")
    axes.plot(
        steps,
        curves.mean(0),
        color=ACCENT,
        linewidth=2.4,
        marker="o" if len(steps) == 1 else None,
        label=f"mean of {len(curves)} seeds",
    )
    axes.set_title(f"{result.dataset} from {result.initialization}", color=INK)
    axes.set_xlabel("fine-tuning steps")
    axes.set_ylabel("test accuracy, %")
    _finish(figure, axes, target)


def plot_curves(results: Mapping[str, FinetuneResult], target: IO[bytes] | str) -> None:
    """Mean test accuracy against fine-tuning steps, a line a start with the band of its 95 % interval."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    shades = dict(zip((name for name in results if name != "none"), [ACCENT, *OTHER_COLOURS] * 9, strict=False))
    for name, result in results.items():
        shade = shades.get(name, QUIET)  # random weights
        steps = [point.step for point in result.runs[0].curve]
        curves = np.array([[100 * point.accuracy for point in run.curve] for run in result.runs])
        middle, half = np.array([mean_and_interval(values) for values in curves.T]).T
        axes.plot(steps, middle, color=shade, linewidth=2.2, label=name, marker="o" if len(steps) == 1 else None)
        axes.fill_between(steps, middle - np.nan_to_num(half), middle + np.nan_to_num(half), color=shade, alpha=0.15)
    first = next(iter(results.values()))
    axes.set_title(f"{first.dataset}, {len(first.runs)} seeds", color=INK)
    axes.set_xlabel("fine-tuning steps")
    axes.set_ylabel("test accuracy, %")
    _finish(figure, axes, target)


def _finish(figure: Any, axes: Any, target: IO[bytes] | str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(target, dpi=130, format="png")
    plt.close(figure)
