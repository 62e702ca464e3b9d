"""The synthetic figures: what each one measures. `write_figures` makes them all, or those that are still missing.

Every figure leaves its numbers (parquet, JSON) beside its PNG. The PNG comes last, so it marks a finished figure.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from rayctsl.experiments.output import Output
from rayctsl.experiments.synthetic import plots
from rayctsl.experiments.synthetic.run import SyntheticRun, losses_along, meta_train, synthetic_config
from rayctsl.experiments.synthetic.statistics import (
    EDGE_STARTS,
    NUM_ENVIRONMENTS,
    compare,
    drawn_environments,
    intervals,
    quality_along,
)
from rayctsl.experiments.synthetic.surface_group import SurfaceGroup, unflatten_points
from rayctsl.experiments.synthetic.surfaces import Environment

METHODS = ("reptile", "shifting", "accurate")
OPTIMIZERS = ("sgd", "momentum", "adam")
LOW, HIGH = -5.0, 15.0  # the square of starting points
AT_REST = 1e-3  # a path whose last update is shorter than this has come to rest
SAME_PLACE = 0.3  # points of rest nearer than this are one local optimum


def grid(points: int, low: float = LOW, high: float = HIGH) -> tuple[np.ndarray, np.ndarray]:
    """The values along a side, and all points [points^2, 2] of the square."""
    line = np.linspace(low, high, points)
    return line, np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)


@dataclass(frozen=True)
class FigureSetting:
    """What the figures are about: an environment, and the seed of the further ones that statistics draw."""

    environment: Environment
    seed: int
    out: Output

    def quality_map(self) -> tuple[np.ndarray, np.ndarray]:
        """A line of coordinates and the task-average loss after 100 steps from every point of its square."""
        line, points = grid(116, LOW - 1.5, HIGH + 1.5)
        quality = losses_along(self.environment, points, synthetic_config())[-1]
        self.out.write_table("quality_map", {"x": points[:, 0], "y": points[:, 1], "loss": quality})
        return line, quality.reshape(len(line), -1)


def surfaces(setting: FigureSetting) -> Figure:
    """Figures 4a, 4b and the supplement's 3."""
    names = setting.environment.names
    columns: dict[str, ArrayLike] = {"task": names, "angle": setting.environment.angles}
    setting.out.write_table("surfaces", {**columns, "x": setting.environment.targets[:, 0],
                                         "y": setting.environment.targets[:, 1]})  # fmt: skip
    return plots.draw_surfaces(setting.environment)


def short_horizon(setting: FigureSetting) -> Figure:
    """Figure 4c: the phi that is best after k steps, and what it is worth after 100."""
    _, points = grid(101)
    config = synthetic_config()

    def curve(environment: Environment) -> np.ndarray:
        losses = losses_along(environment, points, config)
        losses = np.where(np.isfinite(losses), losses, np.inf)  # some starts may diverge
        return losses[-1, losses[1:].argmin(axis=1)]

    here = curve(setting.environment)
    many = np.stack([curve(environment) for environment in drawn_environments(setting.seed)])
    mean, half = intervals(many.T)
    k = np.arange(1, config.inner_steps + 1)
    setting.out.write_table("short_horizon", {"k": k, "loss": here, "mean": mean, "interval": half})
    return plots.draw_short_horizon(here, mean, half, config.inner_steps, len(many))


def cost(setting: FigureSetting) -> Figure:
    """Figure 4d: inner steps for the same number of meta-updates, counted in real runs."""
    runs = {name: meta_train(setting.environment, [(-5, 5)], synthetic_config(name)) for name in METHODS}
    least = runs["shifting"].inner_steps
    rows = [
        {
            "method": name,
            "meta_updates": len(run.trajectory) - 1,
            "inner_steps": run.inner_steps,
            "times": run.inner_steps / least,
        }
        for name, run in sorted(runs.items(), key=lambda item: item[1].inner_steps)
    ]
    setting.out.write_json("cost", rows)
    lines = ["| method | meta-updates | inner steps | times shifting's |", "|---|---|---|---|"]
    lines += [f"| {r['method']} | {r['meta_updates']} | {r['inner_steps']:,} | {r['times']:.1f} |" for r in rows]
    setting.out.write_text("cost.md", "\n".join(lines) + "\n")
    return plots.draw_cost(rows)


def landscapes(setting: FigureSetting) -> Figure:
    """Figures 5a, b: where Reptile comes to rest with short and with long trajectories."""
    runs, summary, tables = {}, [], []
    # Short trajectories give short meta-updates, so they get more of them.
    for k, updates in ((5, 1500), (100, 300)):
        config = synthetic_config("reptile", inner_steps=k, trajectories=updates // k)
        run = meta_train(setting.environment, grid(21)[1], config)
        optima = rest_points(run)
        quality = losses_along(setting.environment, optima, synthetic_config())[-1]
        resting = np.abs(np.diff(run.trajectory[-2:], axis=0)).max(-1)[0] < AT_REST
        summary.append({"k": k, "meta_updates": updates, "starts": len(resting), "at_rest": int(resting.sum()),
                        "optima": optima.tolist(), "loss_after_100": quality.tolist()})  # fmt: skip
        runs[k] = (run.trajectory[:: max(1, updates // 300)], optima)
        tables.append(_path_table(runs[k][0], {"k": k}))
    setting.out.write_json("landscapes", summary)
    setting.out.write_table("landscapes", _join(tables))
    return plots.draw_landscapes(runs)


def quality(setting: FigureSetting) -> Figure:
    """Figures 5c, d: the paths of three methods over the map of initialization quality."""
    starts = [(-5.0, 5.0), (5.0, -5.0)]
    runs = {name: meta_train(setting.environment, starts, synthetic_config(name)) for name in METHODS}
    return _paths_over_map(setting, "quality", starts, runs)


def optimizers(setting: FigureSetting) -> Figure:
    """The supplement's Figure 1: shifting with three inner optimizers, here and over many environments."""
    starts = [(-5.0, 5.0), (15.0, 5.0), (5.0, -5.0)]
    configs = {name: synthetic_config(optimizer=name) for name in OPTIMIZERS}
    ends = {name: quality_along(config, setting.seed, points=1)[1][-1] for name, config in configs.items()}
    setting.out.write_json("optimizers_over_environments", compare(ends, "momentum"))
    runs = {name: meta_train(setting.environment, starts, config) for name, config in configs.items()}
    return _paths_over_map(setting, "optimizers", starts, runs)


def _paths_over_map(
    setting: FigureSetting, name: str, starts: Sequence[tuple[float, float]], runs: dict[str, SyntheticRun]
) -> Figure:
    # Every end is judged by the same momentum steps that made the map, whatever optimizer led there.
    worth = {key: losses_along(setting.environment, run.trajectory[-1], synthetic_config())[-1]
             for key, run in runs.items()}  # fmt: skip
    results = [
        {"run": key, "start": start, "end": run.trajectory[-1, s].tolist(), "inner_steps": run.inner_steps,
         "loss_after_100": float(worth[key][s])}
        for key, run in runs.items() for s, start in enumerate(starts)
    ]  # fmt: skip
    setting.out.write_json(name, results)
    setting.out.write_table(name, _join([_path_table(run.trajectory, {"run": key}) for key, run in runs.items()]))
    panels = {start: {key: run.trajectory[:, s] for key, run in runs.items()} for s, start in enumerate(starts)}
    return plots.draw_quality(*setting.quality_map(), panels)


def shifting(setting: FigureSetting) -> Figure:
    """The supplement's Figure 2: inner steps and shifts of the first trajectory, task by task."""
    starts = [(-5.0, 5.0), (15.0, 5.0)]
    seen: list[np.ndarray] = []

    def watch(group: SurfaceGroup) -> None:
        seen.append(group.learner.theta.clone().numpy())

    run = meta_train(setting.environment, starts, synthetic_config(trajectories=1), watch=watch)
    after = unflatten_points(np.stack(seen))  # [K, T, S, 2]
    before = after - np.diff(run.trajectory, axis=0)[:, None]
    panels = {start: (run.trajectory[:, s], before[:, :, s], after[:, :, s]) for s, start in enumerate(starts)}
    tasks = min(4, after.shape[1])
    k, task, start = np.meshgrid(*(np.arange(1, size + 1) for size in after.shape[:3]), indexing="ij")
    columns = {"k": k, "task": task, "start": start, "x": after[..., 0], "y": after[..., 1],
               "x_before_shift": before[..., 0], "y_before_shift": before[..., 1]}  # fmt: skip
    setting.out.write_table("shifting", columns)
    return plots.draw_shifting(setting.environment, panels, tasks)


def convergence(setting: FigureSetting) -> Figure:
    """Not in the paper: quality against inner steps over many drawn environments and starts, with intervals."""
    curves, ends, tables = {}, {}, list[dict[str, ArrayLike]]()
    for name in METHODS:
        spent, logs = quality_along(synthetic_config(name), setting.seed)
        mean, half = intervals(logs)
        curves[name], ends[name] = (spent, mean, half), logs[-1]
        tables.append({"method": [name] * len(spent), "inner_steps": spent, "log10_loss": mean, "interval": half})
    setting.out.write_table("convergence", _join(tables))
    setting.out.write_json("convergence", compare(ends, "shifting"))
    return plots.draw_convergence(curves, f"{NUM_ENVIRONMENTS} drawn environments, {len(EDGE_STARTS)} starts each")


def rest_points(run: SyntheticRun) -> np.ndarray:
    """The local optima [N, 2] of a meta-landscape: where paths came to rest, one point for all that met."""
    moved = np.abs(run.trajectory[-1] - run.trajectory[-2]).max(-1)
    optima: list[np.ndarray] = []
    for point in run.trajectory[-1][moved < AT_REST]:
        if all(np.linalg.norm(point - other) > SAME_PLACE for other in optima):
            optima.append(point)
    return np.array(optima).reshape(-1, 2)


def _path_table(paths: np.ndarray, labels: dict[str, int | str]) -> dict[str, np.ndarray]:
    updates, starts, _ = paths.shape
    update, start = np.meshgrid(np.arange(updates), np.arange(starts), indexing="ij")
    named = {key: np.full(updates * starts, value) for key, value in labels.items()}
    return {**named, "start": start.ravel(), "point": update.ravel(), "x": paths[..., 0].ravel(),
            "y": paths[..., 1].ravel()}  # fmt: skip


def _join(tables: Sequence[Mapping[str, ArrayLike]]) -> dict[str, np.ndarray]:
    return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}


FIGURES: dict[str, Callable[[FigureSetting], Figure]] = {
    "surfaces": surfaces,
    "short_horizon": short_horizon,
    "cost": cost,
    "landscapes": landscapes,
    "quality": quality,
    "optimizers": optimizers,
    "shifting": shifting,
    "convergence": convergence,
}


def write_figures(
    environment: Environment,
    out: Output,
    *,
    seed: int = 0,
    only: Sequence[str] = (),
    force: bool = False,
    say: Callable[[str], None] = print,
    command: str = "",
) -> None:
    """Make the figures that the folder does not have yet (all of them with `force`)."""
    _claim(environment, out, force)
    setting, wanted = FigureSetting(environment, seed, out), list(only or FIGURES)
    for number, name in enumerate(wanted, start=1):
        if out.has(f"{name}.png") and not force:
            say(f"[{number}/{len(wanted)}] {name}: kept")
            continue
        started = time.perf_counter()
        out.write_figure(name, FIGURES[name](setting))
        seconds = time.perf_counter() - started
        say(f"[{number}/{len(wanted)}] {name}: {seconds:.1f} s  ({command} --only {name})")


def _claim(environment: Environment, out: Output, force: bool) -> None:
    """A folder is about one environment: remember it, and refuse another."""
    name = "environment.npz"
    if out.has(name) and not force:
        known = Environment.load(f"{out}/{name}")
        same = all(np.array_equal(getattr(known, key), getattr(environment, key)) for key in vars(environment))
        if not same:
            raise ValueError(f"{out} holds figures of another environment; choose another --out, or --force")
    buffer = io.BytesIO()
    np.savez(buffer, **vars(environment))
    out.storage.write(name, buffer.getvalue())
