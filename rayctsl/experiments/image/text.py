"""An image experiment in words: its tables and its report as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rayctsl.experiments.image.cells import accuracies, choose, score
from rayctsl.experiments.image.records import Candidate, TuneResult
from rayctsl.experiments.image.statistics import MEAN, Interval, Speed
from rayctsl.experiments.image.suite import Suite
from rayctsl.experiments.image.summary import Report
from rayctsl.statistics import mean_and_interval


def format_table(report: Report) -> str:
    """The accuracies as a Markdown table, best method first."""
    table, differences = report.table(), report.differences()
    order = sorted(table, key=lambda method: -table[method][MEAN][0])
    head = ["method", *report.names.values(), "mean", "shifting minus it"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method in order:
        cells = [format_interval(table[method].get(of)) for of in (*report.suite.targets, MEAN)]
        lines.append("| " + " | ".join([method, *cells, format_interval(differences.get(method), sign=True)]) + " |")
    return "\n".join(lines)


def format_interval(cell: Interval | None, sign: bool = False) -> str:
    if cell is None:
        return ""
    mean, half = cell
    return (f"{mean:+.1f}" if sign else f"{mean:.1f}") + ("" if math.isnan(half) else f" ± {half:.1f}")


def format_report(report: Report, table: str, prefix: str) -> str:
    suite, recipe, base = report.suite, report.recipe, report.suite.config(next(iter(report.suite.methods)), {})
    spent = max(report.spent(method).get("inner", 0) for method in report.finals)
    lines = [
        f"{base.model.name} (width {base.model.width}), {len(suite.sources)} sources "
        f"({', '.join(name.partition('@')[0] for name in suite.sources)}), batch {base.data.batch_size}, "
        f"K {base.inner_steps}, M {base.trajectories}: {spent:,} inner steps for every method. Meta-test: "
        f"{recipe.steps} steps, batch {recipe.batch_size}, rate {recipe.alpha:g}. Mean and 95 % interval over "
        f"{suite.seeds} training seeds; the last column is paired by seed.",
        "",
        table,
        "",
        *search_lines(report),
        "",
        *_speed_lines(report.speed()),
    ]
    if report.diverged():
        lines += [f"Diverged, and left out: {', '.join(report.diverged())}.", ""]
    for name in ("losses", "accuracy", "methods", "lengths"):
        if name != "lengths" or any(len(points) > 1 for points in report.lengths().values()):
            lines += [f"![{name}]({prefix}_{name}.png)", ""]
    return "\n".join(lines)


def search_lines(report: Report) -> list[str]:
    """What the search tried and took, with the extra gradients that a method needs."""
    lines = ["| method | candidates: accuracy on held-out images of the sources | chosen | gradients besides |"]
    lines.append("|---|---|---|---|")
    for method in report.finals:
        candidates = report.suite.candidates(method)
        taken = report.stages.chosen[method]
        chosen = _words(taken, candidates) + (" (edge of the grid)" if at_edge(taken, candidates) else "")
        extra = {name: count for name, count in report.spent(method).items() if name != "inner" and count}
        besides = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in extra.items())
        lines.append(f"| {method} | {_tried(report.suite, report.stages.tune, method)} | {chosen} | {besides} |")
    return lines


def format_search(suite: Suite, tuned: Mapping[str, TuneResult]) -> str:
    """What the search alone says: every method's candidates, its best, and that minus the first method's, paired."""
    chosen, searched = choose(suite, tuned), [method for method in suite.methods if _tried(suite, tuned, method)]
    if not searched:
        return "nothing to search: every method has one candidate"
    found = {method: accuracies(tuned, method, chosen[method]) for method in searched}
    lines = [
        f"| method | candidates: accuracy on held-out images of the sources | best | minus {searched[0]} |",
        "|---|---|---|---|",
    ]
    for method, ours in found.items():
        pairs = zip(ours, found[searched[0]], strict=True)
        minus = "" if method == searched[0] else format_interval(mean_and_interval([a - b for a, b in pairs]), True)
        best = format_interval(mean_and_interval(ours))
        lines.append(f"| {method} | {_tried(suite, tuned, method)} | {best} | {minus} |")
    return "\n".join(lines)


def _tried(suite: Suite, tuned: Mapping[str, TuneResult], method: str) -> str:
    """Example: beta 0.1: 31.6; beta 1e+30: diverged"""
    candidates = suite.candidates(method)
    if len(candidates) == 1 or method in suite.ablations:
        return ""
    scores = {_words(candidate, candidates): score(tuned, method, candidate) for candidate in candidates}
    return "; ".join(f"{words}: {'diverged' if found < 0 else f'{found:.1f}'}" for words, found in scores.items())


def at_edge(taken: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Whether a step size with three or more candidates was best at the first or last: a wider grid may have better."""
    for key, value in taken.items():
        grid = {candidate[key] for candidate in candidates}
        numbers = sorted(each for each in grid if isinstance(each, (int, float)))
        if len(numbers) > 2 and value in (numbers[0], numbers[-1]):
            return True
    return False


def _words(candidate: Candidate, candidates: Sequence[Candidate]) -> str:
    """The keys in which a candidate differs from the others."""
    keys = [key for key in candidate if len({str(other.get(key)) for other in candidates}) > 1]
    return ", ".join(f"{key} {candidate[key]}" for key in keys)


def _speed_lines(reached: Speed | None) -> list[str]:
    if reached is None:
        return []
    if reached.times_fewer is None:
        return [f"Shifting does not reach Reptile's final mean accuracy of {reached.accuracy:.1f} %.", ""]
    return [
        f"Shifting is as good as Reptile at its end ({reached.accuracy:.1f} %, {reached.rival_spent:,} inner steps) "
        f"after {reached.spent:,} inner steps, the first tested point that is ({reached.times_fewer:.1f} times fewer; "
        f"{reached.times_fewer_interpolated:.1f} times on straight lines between the points).",
        "",
    ]
