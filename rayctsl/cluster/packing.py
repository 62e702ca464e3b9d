"""Which learner hosts which tasks: longest processing time first, by measured cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Packing:
    """Tasks of every learner. Recorded in each snapshot: sums are taken in this order, so a resumed run must keep it.

    Example: Packing(learners=(("cub",), ("svhn", "cifar100")), expected_utilisation=0.93)
    """

    learners: tuple[tuple[str, ...], ...]
    expected_utilisation: float

    def to_json(self) -> dict[str, object]:
        return {"learners": [list(names) for names in self.learners], "expected": self.expected_utilisation}

    @classmethod
    def from_json(cls, raw: Mapping[str, object]) -> Packing:
        learners = raw["learners"]
        assert isinstance(learners, list)
        return cls(tuple(tuple(names) for names in learners), float(str(raw["expected"])))


def pack(costs: Mapping[str, float], num_learners: int) -> Packing:
    """The costliest task first, each to the learner with the least work so far; no learner stays empty.

    Within a learner, and among learners, tasks keep the order of `costs`.
    """
    if num_learners > len(costs):
        raise ValueError(f"{num_learners} learners for {len(costs)} tasks: at least one would be idle")
    loads = [0.0] * num_learners
    chosen: list[list[str]] = [[] for _ in range(num_learners)]
    for name in sorted(costs, key=lambda name: -costs[name]):
        least = min(range(num_learners), key=lambda learner: (loads[learner], len(chosen[learner])))
        loads[least] += costs[name]
        chosen[least].append(name)
    order = {name: place for place, name in enumerate(costs)}
    learners = sorted((sorted(names, key=order.__getitem__) for names in chosen), key=lambda names: order[names[0]])
    return Packing(tuple(tuple(names) for names in learners), utilisation(loads))


def utilisation(loads: Sequence[float]) -> float:
    """The share of the time that learners with these loads work, when all wait for the slowest."""
    longest = max(loads)
    return sum(loads) / (len(loads) * longest) if longest > 0 else 1.0
