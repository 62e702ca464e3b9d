"""The synthetic experiment's pictures (Figures 4 and 5 of the paper, and its supplement)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import MaxNLocator

from rayctsl.experiments.synthetic.surfaces import Environment, Surfaces
from rayctsl.plots import ACCENT, INK, OTHER_COLOURS, QUIET, label, plt, style

COLOURS = {
    **{method: style(method)[0] for method in ("reptile", "shifting", "accurate")},
    **dict(zip(("sgd", "momentum", "adam"), OTHER_COLOURS[1:4], strict=True)),
}
LABELS = {
    **{method: label(method) for method in ("reptile", "shifting", "accurate")},
    "sgd": "SGD",
    "momentum": "momentum",
    "adam": "Adam",
}


def plane(axes: Any, title: str, ylabel: bool = True) -> None:
    """Dress axes that show the plane of phi, both with ticks of one distance."""
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_title(title, color=INK, fontsize=10)
    axes.set_xlabel("x")
    if ylabel:
        axes.set_ylabel("y")


def draw_surfaces(environment: Environment) -> Any:
    """The template (unrotated, around the circle's centre) and every task's surface, with all centres."""
    middle = environment.targets.mean(0, keepdims=True)
    template = Environment(np.zeros(1), middle, environment.coeff)
    panels = [("template", template)]
    panels += [(f"task {t + 1}", environment.only([name])) for t, name in enumerate(environment.names)]
    columns = 3
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(8.6, 2.75 * rows), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    line = np.linspace(-12, 22, 120)
    mesh = np.stack(np.meshgrid(line, line), 0).reshape(1, 2, -1)
    image = None
    for axes, (title, one) in zip(grid.flat, panels, strict=False):
        heights = Surfaces([one]).heights(mesh)[0].reshape(len(line), -1)
        norm = LogNorm(vmin=0.1, vmax=1000)
        image = axes.pcolormesh(line, line, heights.clip(0.1, 1000), norm=norm, cmap="viridis", rasterized=True)
        axes.plot(*environment.targets.T, ".", color="white", markersize=3)
        axes.plot(*one.targets.T, "o", color=ACCENT, markersize=5)
        plane(axes, title)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    for axes in grid.flat:
        axes.label_outer()
    figure.colorbar(image, ax=grid, label="loss", shrink=0.6)
    return figure


def draw_short_horizon(curve: np.ndarray, mean: np.ndarray, half: np.ndarray, steps: int, environments: int) -> Any:
    """The loss after `steps` steps from the best phi for k, for k = 1 .. steps."""
    figure, axes = plt.subplots(figsize=(6.4, 3.9), layout="constrained")
    k = np.arange(1, len(curve) + 1)
    low, high = mean - half, mean + half
    axes.plot(k, 1000 * curve, color=QUIET, linewidth=1, label="this environment")
    axes.plot(k, 1000 * mean, color=ACCENT, linewidth=2, label=f"mean of {environments} environments")
    axes.fill_between(k, 1000 * low, 1000 * high, color=ACCENT, alpha=0.2, label="95 % interval")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("k with which the best phi was found")
    axes.set_ylabel(f"1000 x task-average loss {steps} steps from it")
    axes.legend(frameon=False)
    return tidy(figure, axes)


def draw_cost(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A table with a bar for every method's inner steps."""
    figure, axes = plt.subplots(figsize=(6.4, 0.7 + 0.6 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        axes.barh(place, row["inner_steps"], color=COLOURS[row["method"]], height=0.6)
        text = f"  {row['inner_steps']:,}  ({row['times']:.1f} x)"
        axes.text(row["inner_steps"], place, text, va="center", color=INK)
    axes.set_yticks(range(len(rows)), [LABELS[row["method"]] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(1e3, 4e6)
    axes.set_xlabel(f"cumulative inner steps over all tasks, {rows[0]['meta_updates']} meta-updates each")
    return tidy(figure, axes)


def draw_landscapes(runs: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> Any:
    """Reptile's paths (runs[k][0]: [updates, starts, 2]) and the points where they came to rest (runs[k][1])."""
    figure, grid = plt.subplots(1, len(runs), figsize=(4.6 * len(runs), 4.6), layout="constrained", sharey=True)
    for axes, (k, (paths, optima)) in zip(grid, runs.items(), strict=True):
        for path in np.swapaxes(paths, 0, 1):
            axes.plot(*path.T, color=COLOURS["reptile"], linewidth=0.5, alpha=0.6)
        axes.plot(*paths[0].T, ".", color=QUIET, markersize=2)
        axes.plot(*optima.T, "o", color=INK, markersize=5, label=f"{len(optima)} local optima", zorder=3)
        plane(axes, f"Reptile, k = {k}", ylabel=axes is grid[0])
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, borderpad=0)
    return figure


def draw_quality(
    line: np.ndarray, quality: np.ndarray, panels: Mapping[tuple[float, float], Mapping[str, np.ndarray]]
) -> Any:
    """Paths of phi over the map of what each point is worth; panels[start][name] = path [updates + 1, 2]."""
    count = len(panels)
    figure, grid = plt.subplots(1, count, figsize=(3.9 * count + 1.2, 4.5), layout="constrained", sharey=True)
    image = None
    for axes, (start, paths) in zip(grid, panels.items(), strict=True):
        image = _quality_map(axes, line, quality)
        for name, path in paths.items():
            outline = [Stroke(linewidth=4, foreground="white"), Normal()]  # the map is as dark as some colours
            axes.plot(*path.T, color=COLOURS[name], linewidth=1.8, label=LABELS[name], path_effects=outline)
            axes.plot(*path[-1], "*", color=COLOURS[name], markersize=12, markeredgecolor="black", zorder=4)
        axes.plot(*start, "o", color="white", markeredgecolor="black", zorder=4)
        plane(axes, f"start ({start[0]:g}, {start[1]:g})", ylabel=axes is grid[0])
    names, labels = grid[0].get_legend_handles_labels()
    figure.legend(names, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.colorbar(image, ax=grid, label="task-average loss after 100 steps (dark is good)", shrink=0.8)
    return figure


def _quality_map(axes: Any, line: np.ndarray, quality: np.ndarray) -> Any:
    low, high = np.nanpercentile(quality, [0.5, 98])
    return axes.pcolormesh(line, line, quality, norm=LogNorm(low, high), cmap="Greys_r", rasterized=True)


def draw_convergence(curves: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]], title: str) -> Any:
    """Quality of phi against inner steps spent: curves[method] = (spent, mean, half width of the interval)."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, (spent, mean, half) in curves.items():
        axes.plot(spent, mean, color=COLOURS[name], linewidth=2, label=LABELS[name])
        axes.fill_between(spent, mean - half, mean + half, color=COLOURS[name], alpha=0.25)
    axes.set_xscale("log")
    axes.set_xlabel("cumulative inner steps over all tasks")
    axes.set_ylabel("log10 of task-average loss\n100 steps from phi")
    axes.set_title(title, color=INK, fontsize=10)
    axes.legend(frameon=False)
    return tidy(figure, axes)


def draw_shifting(
    environment: Environment,
    panels: Mapping[tuple[float, float], tuple[np.ndarray, np.ndarray, np.ndarray]],
    tasks: int,
) -> Any:
    """The first trajectory of some tasks: panels[start] = phi [K + 1, 2], theta before and after shifts [K, T, 2]."""
    rows = len(panels)
    figure, grid = plt.subplots(
        rows, tasks, figsize=(2.7 * tasks, 2.9 * rows + 0.3), layout="constrained", squeeze=False
    )
    for row, (start, (phi, before, after)) in zip(grid, panels.items(), strict=True):
        for t, axes in enumerate(row):
            shown = np.concatenate([phi, before[:, t], after[:, t]])
            _contours(axes, environment.only([environment.names[t]]), shown)
            begin = np.concatenate([phi[:1], after[:-1, t]])
            _segments(axes, begin, before[:, t], QUIET, "inner step")
            _segments(axes, before[:, t], after[:, t], ACCENT, "shift")
            axes.plot(*phi.T, color="black", linewidth=1.5, label="phi")
            axes.plot(*start, "o", color="white", markeredgecolor="black", markersize=5)
            plane(axes, f"task {t + 1} from ({start[0]:g}, {start[1]:g})", ylabel=t == 0)
    names, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(names, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _contours(axes: Any, surface: Environment, shown: np.ndarray) -> None:
    """One surface's level lines in the square around some points [N, 2]."""
    middle, reach = (shown.max(0) + shown.min(0)) / 2, 0.58 * np.ptp(shown, axis=0).max()
    x, y = (np.linspace(centre - reach, centre + reach, 120) for centre in middle)
    heights = Surfaces([surface]).heights(np.stack(np.meshgrid(x, y), 0).reshape(1, 2, -1))[0].reshape(len(y), -1)
    axes.contour(x, y, heights, levels=np.geomspace(1, 1000, 10), colors=QUIET, linewidths=0.5, alpha=0.7)


def _segments(axes: Any, begin: np.ndarray, end: np.ndarray, colour: str, label: str) -> None:
    """Unconnected strokes from begin [N, 2] to end [N, 2], as one line with gaps."""
    gaps = np.full_like(begin, np.nan)
    strokes = np.stack([begin, end, gaps], axis=1).reshape(-1, 2)
    axes.plot(*strokes.T, color=colour, linewidth=1.1, label=label)


def tidy(figure: Any, axes: Any) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure
