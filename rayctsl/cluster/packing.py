"""Which learner hosts which tasks: longest processing time first, by measured cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayctsl.contract import Contract, JsonObject


class Packing(Contract):
    """Tasks of every learner. It decides how long a step takes, and nothing else.

    Example: Packing(learners=(("cub",), ("svhn", "cifar100")), expected_utilisation=0.93)
    """

    CURRENT = 2

    learners: tuple[tuple[str, ...], ...]
    expected_utilisation: float

    @classmethod
    def upgrade(cls, raw: JsonObject) -> JsonObject:
        return {"learners": raw["learners"], "expected_utilisation": raw["expected"]}


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
    hosted = tuple(tuple(names) for names in learners)
    return Packing(learners=hosted, expected_utilisation=utilisation(loads))


def utilisation(loads: Sequence[float]) -> float:
    """The share of the time that learners with these loads work, when all wait for the slowest."""
    longest = max(loads)
    return sum(loads) / (len(loads) * longest) if longest > 0 else 1.0
