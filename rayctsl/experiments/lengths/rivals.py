"""Shifting, plain or with something past the paper, against other methods: at equal inner steps, and by the clock."""

from __future__ import annotations

from rayctsl.experiments.image.statistics import difference, summarise
from rayctsl.experiments.image.suite import base_method
from rayctsl.experiments.image.text import format_interval
from rayctsl.experiments.lengths.results import Results
from rayctsl.experiments.lengths.tables import OURS, Which, cost, usual, which

RIVALS = ("reptile", "mtl", "single")
ANY_LENGTH = ("mtl", "single")  # K says nothing to them


def rivals_table(results: Results, step_seconds: float, exchange_seconds: float) -> str:
    """A line for every pair. By the clock, with a learner a task: the rival's last kept phi that took no longer."""
    head = (
        "| method | K | accuracy | rival | minus it at equal inner steps, paired | by the clock, of its inner steps |"
    )
    lines = [head, "|---|---|---|---|---|---|"]
    tested = which(results)
    for of in tested:
        if base_method(of[0]) != OURS:
            continue
        ours = usual(results, of)
        for rival in _rivals(of, tested):
            cells = [of[0], f"{of[1]:,}", format_interval(summarise(ours)), rival[0]]
            cells.append(format_interval(difference(ours, usual(results, rival)), sign=True))
            reached = _no_slower(results, of, rival, step_seconds, exchange_seconds)
            rows = [row for row in usual(results, rival, on_the_way=True) if row["spent"] == reached]
            cells.append(f"{format_interval(difference(ours, rows), sign=True)}, {reached:,}" if reached else "")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rivals(of: Which, tested: list[Which]) -> list[Which]:
    """Plain shifting for what goes past it, then the others, at the same K where K matters."""
    method, length = of
    plain = [(OURS, length)] if method != OURS else []
    others = [
        (name, k) for name in RIVALS for found, k in tested if found == name and (k == length or name in ANY_LENGTH)
    ]
    return [rival for rival in (*plain, *others) if rival in tested]


def _no_slower(results: Results, of: Which, rival: Which, step_seconds: float, exchange_seconds: float) -> int | None:
    """The inner steps of the rival's last kept phi that it had when ours was done, or before."""
    spent = {(row["method"], row["inner_steps"]): row for row in results["trainings"]}
    if of not in spent or rival not in spent:
        return None
    price = (step_seconds, exchange_seconds)
    limit = cost(spent[of], spent[of]["gradients"]["inner"], *price).seconds
    kept = {row["spent"] for row in usual(results, rival, on_the_way=True)}
    return max((at for at in kept if cost(spent[rival], at, *price).seconds <= limit), default=None)
