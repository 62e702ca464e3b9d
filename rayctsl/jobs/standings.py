"""Who is ahead: accuracies of several starts with the same seeds, ranked, differences paired seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rayctsl.statistics import mean_and_interval


@dataclass(frozen=True)
class Standing:
    """A start's place in a comparison; accuracies and differences in percent, intervals at 95 %."""

    name: str
    mean: float
    interval: float  # half width; NaN with one seed
    behind: float  # mean of (the best's accuracy - this one's), seed by seed
    behind_interval: float
    accuracies: tuple[float, ...]  # by seed


def rank(accuracies: Mapping[str, Sequence[float]]) -> list[Standing]:
    """The best first; each compared with the best seed by seed, which the noise that they share does not touch."""
    best = max(accuracies.values(), key=lambda values: sum(values) / len(values))
    standings = []
    for name, values in accuracies.items():
        mean, interval = mean_and_interval(values)
        behind, half = mean_and_interval([top - own for top, own in zip(best, values, strict=True)])
        standings.append(Standing(name, mean, interval, behind, half, tuple(values)))
    return sorted(standings, key=lambda standing: -standing.mean)


def format_standings(standings: Sequence[Standing]) -> str:
    """The table for people. Differences whose interval leaves zero out are marked with a star."""
    width = max(len("start"), *(len(standing.name) for standing in standings))
    lines = [f"{'start':{width}}  {'accuracy':>16}  {'behind the best':>18}"]
    for standing in standings:
        accuracy = _with_interval(standing.mean, standing.interval)
        behind = "" if standing is standings[0] else _with_interval(standing.behind, standing.behind_interval)
        clear = "*" if behind and standing.behind > standing.behind_interval else ""
        lines.append(f"{standing.name:{width}}  {accuracy:>16}  {behind + clear:>18}")
    return "\n".join(lines)


def _with_interval(value: float, half: float) -> str:
    return f"{value:.2f} ± {half:.2f} %" if half == half else f"{value:.2f} %"
