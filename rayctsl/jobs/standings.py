"""Who is ahead: accuracies of several starts with the same seeds, ranked, differences paired seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rayctsl.statistics import mean_and_interval

RANDOM = "none"  # the start that every other should be ahead of


@dataclass(frozen=True)
class Standing:
    """A start's place in a comparison; accuracies and differences in percent, intervals at 95 %."""

    name: str
    mean: float
    interval: float  # half width; NaN with one seed
    behind: float  # mean of (the best's accuracy - this one's), seed by seed
    behind_interval: float
    accuracies: tuple[float, ...]  # by seed

    def to_json(self) -> dict[str, object]:
        """As data; what is not a number is null, as JSON has no other word for it."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


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
    random = next((standing for standing in standings if standing.name == RANDOM), None)
    ahead = f"  {'ahead of none':>18}" if random else ""
    lines = [f"{'start':{width}}  {'accuracy':>16}  {'behind the best':>18}{ahead}"]
    for standing in standings:
        cells = ["" if standing is standings[0] else _difference(standing.behind, standing.behind_interval)]
        if random:
            gains = [own - other for own, other in zip(standing.accuracies, random.accuracies, strict=True)]
            cells.append("" if standing is random else _difference(*mean_and_interval(gains)))
        shown = "".join(f"  {cell:>18}" for cell in cells)
        lines.append(f"{standing.name:{width}}  {_with_interval(standing.mean, standing.interval):>16}{shown}".rstrip())
    return "\n".join(lines)


def _difference(value: float, half: float) -> str:
    return _with_interval(value, half) + ("*" if abs(value) > half else "")


def _with_interval(value: float, half: float) -> str:
    return f"{value:.2f} ± {half:.2f} %" if half == half else f"{value:.2f} %"
