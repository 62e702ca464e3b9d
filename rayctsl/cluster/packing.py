"""Which learner hosts which tasks: longest processing time first, by measured cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rayctsl.contract import Contract, JsonObject

SHOWN = 8  # learners, and tasks of each, that a description names


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

    def describe(self) -> str:
        """For people, a line a learner. Example: "2 learners, the work spread evenly to 93 %:\\n  cub\\n  svhn" """
        learners = "1 learner" if len(self.learners) == 1 else f"{len(self.learners)} learners"
        shown = [f"  {_few(names)}" for names in self.learners[:SHOWN]]
        left = [f"  and {len(self.learners) - SHOWN} more"] if len(self.learners) > SHOWN else []
        return "\n".join(
            [f"{learners}, the work spread evenly to {100 * self.expected_utilisation:.0f} %:", *shown, *left]
        )


def pack(costs: Mapping[str, float], num_learners: int, slowness: Sequence[float] | None = None) -> Packing:
    """The costliest task first, each to the learner that would be done with it first; no learner stays empty.

    Within a learner, and among learners of one speed, tasks keep the order of `costs`.

    Args:
        slowness: how long each learner takes for a unit of cost; all the same when absent.
    """
    if num_learners > len(costs):
        raise ValueError(f"{num_learners} learners for {len(costs)} tasks: at least one would be idle")
    pace = list(slowness or [1.0] * num_learners)
    loads = [0.0] * num_learners
    chosen: list[list[str]] = [[] for _ in range(num_learners)]
    order = {name: place for place, name in enumerate(costs)}
    by_cost = sorted(costs, key=lambda name: -costs[name])
    for number, name in enumerate(by_cost):
        empty = [learner for learner in range(num_learners) if not chosen[learner]]
        others = range(num_learners) if len(by_cost) - number > len(empty) else empty
        ends = {learner: loads[learner] + costs[name] * pace[learner] for learner in others}
        least = min(others, key=lambda learner: (ends[learner], len(chosen[learner])))
        loads[least] = ends[least]
        chosen[least].append(name)
    hosted = [tuple(sorted(names, key=order.__getitem__)) for names in chosen]
    if slowness is None:
        hosted.sort(key=lambda names: order[names[0]])
    return Packing(learners=tuple(hosted), expected_utilisation=utilisation(loads))


def utilisation(loads: Sequence[float]) -> float:
    """The share of the time that learners with these loads work, when all wait for the slowest."""
    longest = max(loads)
    return sum(loads) / (len(loads) * longest) if longest > 0 else 1.0


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
