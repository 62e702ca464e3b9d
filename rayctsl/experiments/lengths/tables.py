"""Accuracy against K, three accounts of cost, and what the length of fine-tuning decides: numbers and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rayctsl.experiments.image.statistics import AccuracyPoint, Interval, Speed, by_seed, difference, speed, summarise
from rayctsl.experiments.image.text import format_interval
from rayctsl.experiments.lengths.results import Results, Spent, Test
from rayctsl.plots import label

OURS, RIVAL = "shifting", "reptile"
USUAL_STEPS, ALL_IMAGES = 100, 0  # the suites' own recipe
Which = tuple[str, int]  # method and K


@dataclass(frozen=True)
class Cost:
    """What a phi has cost in three accounts."""

    inner_steps: int  # over all tasks
    seconds: float  # on as many learners as tasks
    gradients: int  # inner, held out, and Hessian products twice


def which(results: Results) -> list[Which]:
    """The methods and Ks that have been tested."""
    return sorted({(row["method"], row["inner_steps"]) for row in results["tests"]})


def usual(results: Results, of: Which, *, on_the_way: bool = False) -> list[Test]:
    """The fine-tunings by the suites' own recipe: of final phis, or of all that were kept."""
    rows = [row for row in results["tests"] if (row["method"], row["inner_steps"]) == of]
    rows = [row for row in rows if (row["steps"], row["train_size"]) == (USUAL_STEPS, ALL_IMAGES)]
    return [row for row in rows if row["final"] or on_the_way]


def by_length(results: Results) -> dict[str, dict[int, Interval]]:
    """Mean target accuracy of every method at every K."""
    found: dict[str, dict[int, Interval]] = {}
    for method, length in which(results):
        cell = summarise(usual(results, (method, length)))
        if cell is not None:
            found.setdefault(method, {})[length] = cell
    return found


def points(results: Results, of: Which) -> list[AccuracyPoint]:
    """Mean target accuracy of every phi that was kept on the way."""
    rows = usual(results, of, on_the_way=True)
    cells = {
        at: summarise([row for row in rows if row["spent"] == at]) for at in sorted({row["spent"] for row in rows})
    }
    return [AccuracyPoint(at, cell) for at, cell in cells.items() if cell is not None]


def lengths_table(results: Results) -> str:
    """A line for every K: both methods, their difference paired by seed, and how much sooner ours is as good."""
    lines = ["| K | seeds | shifting | Reptile | shifting minus Reptile, paired | inner steps to Reptile's best |"]
    lines.append("|---|---|---|---|---|---|")
    for length in sorted({length for method, length in which(results) if method in (OURS, RIVAL)}):
        ours, theirs = usual(results, (OURS, length)), usual(results, (RIVAL, length))
        seeds = len(set(by_seed(ours)) & set(by_seed(theirs)))
        cells = [format_interval(summarise(ours)), format_interval(summarise(theirs))]
        cells.append(format_interval(difference(ours, theirs), sign=True))
        cells.append(_reached(points(results, (OURS, length)), points(results, (RIVAL, length))))
        lines.append(f"| {length:,} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def change_table(results: Results) -> str:
    """What longer trajectories cost a method: its accuracy at every K minus that at the shortest, paired by seed."""
    tested = {method: set(cells) for method, cells in by_length(results).items() if len(cells) > 1}
    shortest, *longer = sorted(set().union(*tested.values()))
    lines = [f"| minus K = {shortest:,}, paired | {' | '.join(f'K = {length:,}' for length in longer)} |"]
    lines.append("|---" * (1 + len(longer)) + "|")
    for method in tested:
        start = usual(results, (method, shortest))
        cells = [difference(usual(results, (method, length)), start) for length in longer]
        lines.append(f"| {label(method)} | {' | '.join(format_interval(cell, sign=True) for cell in cells)} |")
    return "\n".join(lines)


def way_table(results: Results) -> str:
    """Accuracy of every phi that was kept on the way, a line for every method and K."""
    curves = {of: {point.spent: point.accuracy for point in points(results, of)} for of in which(results)}
    curves = {of: curve for of, curve in curves.items() if max(curve, default=0)}
    steps = sorted({at for curve in curves.values() for at in curve})
    lines = [f"| method | K | {' | '.join(f'{at:,} steps' for at in steps)} |", "|---" * (len(steps) + 2) + "|"]
    for (method, length), curve in curves.items():
        cells = (format_interval(curve.get(at)) for at in steps)
        lines.append(f"| {label(method)} | {length:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired_table(results: Results) -> str:
    """Shifting and Reptile wherever both were tested: on the way, and with other recipes of fine-tuning."""
    lines = ["| K | inner steps | fine-tuning | shifting | Reptile | shifting minus Reptile, paired |"]
    lines.append("|---|---|---|---|---|---|")
    tested: dict[str, dict[tuple[int, int, int, int], list[Test]]] = {OURS: {}, RIVAL: {}}
    for row in results["tests"]:
        at = (row["inner_steps"], row["spent"], row["steps"], row["train_size"])
        tested.get(row["method"], {}).setdefault(at, []).append(row)
    for at in sorted(set(tested[OURS]) & set(tested[RIVAL])):
        length, spent, steps, images = at
        ours, theirs = tested[OURS][at], tested[RIVAL][at]
        recipe = f"{steps:,} steps, {f'{images:,}' if images else 'all'} images"
        cells = [format_interval(summarise(ours)), format_interval(summarise(theirs))]
        cells.append(format_interval(difference(ours, theirs), sign=True))
        lines.append(f"| {length:,} | {spent:,} | {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _reached(ours: list[AccuracyPoint], theirs: list[AccuracyPoint]) -> str:
    if not (ours and theirs):
        return ""
    found: Speed = speed(ours, theirs)
    if found.crossing is None:
        return f"not within {ours[-1].spent:,}"
    return f"{found.crossing:,.0f} of {found.rival_spent:,}"


def search_table(results: Results) -> str:
    """What every search tried and what it gave."""
    lines = ["| suite | method | tried: accuracy on held-out images of the sources |", "|---|---|---|"]
    for suite, method in dict.fromkeys((row["suite"], row["method"]) for row in results["search"]):
        rows = [row for row in results["search"] if (row["suite"], row["method"]) == (suite, method)]
        tried = [
            f"alpha {row['alpha']:g}, beta {row['beta']:g}: "
            + ("diverged" if row["accuracy"] is None else f"{row['accuracy']:.1f}")
            for row in sorted(rows, key=lambda row: (row["alpha"], row["beta"]))
        ]
        lines.append(f"| {suite} | {method} | {'; '.join(tried)} |")
    return "\n".join(lines)


def cost(spent: Spent, inner: int, step_seconds: float, exchange_seconds: float) -> Cost:
    """What a training had cost when it had taken `inner` steps over all its tasks.

    The tasks run side by side, each on a learner of its own, and wait for one exchange at every meta-update. One task
    alone has nobody to wait for.
    """
    share = inner / max(spent["gradients"]["inner"], 1)
    waits = share * spent["meta_updates"] if spent["tasks"] > 1 else 0.0
    extra = spent["gradients"].get("held_out", 0) + 2 * spent["gradients"].get("hessian", 0)
    seconds = inner / max(spent["tasks"], 1) * step_seconds + waits * exchange_seconds
    return Cost(inner, seconds, inner + round(share * extra))


def cost_curves(
    results: Results, step_seconds: float, exchange_seconds: float
) -> dict[Which, list[tuple[Cost, Interval]]]:
    """Every kept phi's cost in three accounts and its accuracy, by method and K."""
    curves = {}
    for row in sorted(results["trainings"], key=lambda row: (row["method"], row["inner_steps"], -row["seed"])):
        of = (row["method"], row["inner_steps"])
        kept = [point for point in points(results, of) if point.spent]
        curves[of] = [(cost(row, p.spent, step_seconds, exchange_seconds), p.accuracy) for p in kept]
    return {of: curve for of, curve in curves.items() if curve}


def cost_table(curves: dict[Which, list[tuple[Cost, Interval]]]) -> str:
    lines = ["| method | K | inner steps over all tasks | seconds on W = T learners | gradients | accuracy |"]
    lines.append("|---|---|---|---|---|---|")
    for (method, length), found in curves.items():
        price, accuracy = found[-1]
        cells = f"{price.inner_steps:,} | {price.seconds:,.0f} | {price.gradients:,}"
        lines.append(f"| {method} | {length:,} | {cells} | {format_interval(accuracy)} |")
    return "\n".join(lines)


def finetuning(results: Results, key: Literal["steps", "train_size"]) -> dict[Which, dict[int, Interval]]:
    """Accuracy of final phis against one number of the recipe, by method and K; the other number is the usual."""
    found: dict[Which, dict[int, Interval]] = {}
    for of in which(results):
        rows = [row for row in results["tests"] if row["final"] and (row["method"], row["inner_steps"]) == of]
        rows = [r for r in rows if (r["train_size"] == ALL_IMAGES if key == "steps" else r["steps"] == USUAL_STEPS)]
        cells = {
            value: summarise([row for row in rows if row[key] == value]) for value in sorted({r[key] for r in rows})
        }
        found[of] = {value: cell for value, cell in cells.items() if cell is not None}
    return {of: cells for of, cells in found.items() if len(cells) > 1}
