"""Who exchanges with whom in one generation of a group: every actor's part, the meta-learner's last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayctsl.cluster.exchange import CollectivePlan, Plan, RayCallsPlan, SharedMemoryPlan
from rayctsl.cluster.exchange.collective import StoreAddress

VERSION = 1


@dataclass(frozen=True)
class Place:
    """Where an actor lives. Example: Place(node="3f2a…", address="10.0.0.7", pid=4711)"""

    node: str
    address: str
    pid: int


@dataclass(frozen=True)
class Membership:
    """An actor's part in one generation; without a plan it exchanges with nobody.

    Example: Membership("3f2a-1", SharedMemoryPlan("rayctsl-3f2a-1-0", size=270001, members=3, slots=2, seat=0))
    """

    generation: str
    plan: Plan | None = None
    version: int = VERSION

    def check(self) -> None:
        """Refuse what another version of rayctsl has sent: its nodes and this one must have the same."""
        if self.version != VERSION:
            raise ValueError(
                f"the driver's rayctsl speaks version {self.version} of the exchange, this node's {VERSION}; "
                "install the same rayctsl on all nodes"
            )


def arrange(
    exchange: str,
    generation: str,
    actors: list[Any],
    places: list[Place],
    size: int,
    open_store: Callable[[], StoreAddress],
) -> list[Membership]:
    """Every actor's part.

    Args:
        exchange: `alone`, `objects` (Ray calls), `collective` (shared memory first), or a backend of torch.distributed.
        open_store: where the processes of a collective find each other; called if there is one.
    """
    *learners, meta = actors
    if exchange == "alone":
        return alone(generation)
    if exchange == "objects":
        return by_ray_calls(generation, meta, learners)
    if exchange != "collective":
        return by_collective(generation, exchange, open_store(), len(learners))
    several = len({place.node for place in places}) > 1
    return by_shared_memory(generation, places, size, open_store() if several else None)


def alone(generation: str) -> list[Membership]:
    """One learner that has all tasks; the meta-learner follows it from chunk to chunk."""
    return [Membership(generation)] * 2


def by_ray_calls(generation: str, meta_learner: Any, learners: list[Any]) -> list[Membership]:
    """Every learner sends its sum to the meta-learner as a Ray call."""
    count = len(learners)
    meta = Membership(generation, RayCallsPlan(generation, count, learners=tuple(learners)))
    return [*[Membership(generation, RayCallsPlan(generation, count, meta_learner))] * count, meta]


def by_collective(generation: str, backend: str, store: StoreAddress, num_learners: int) -> list[Membership]:
    """Learners with a GPU each all-reduce among themselves; the meta-learner follows from chunk to chunk."""
    plans = [CollectivePlan(backend, store, generation, rank, num_learners) for rank in range(num_learners)]
    return [*(Membership(generation, plan) for plan in plans), Membership(generation)]


def by_shared_memory(generation: str, places: list[Place], size: int, store: StoreAddress | None) -> list[Membership]:
    """Sums inside each node through shared memory; with several nodes, the first of each speaks for it by gloo.

    Args:
        places: of the learners, then of the meta-learner, which has no vector of its own to add.
        store: where the nodes find each other; None when there is one node.
    """
    nodes: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        nodes.setdefault(place.node, []).append(rank)
    meta_rank, members = len(places) - 1, {}
    for number, ranks in enumerate(nodes.values()):
        segment, slots = f"rayctsl-{generation}-{number}", sum(rank != meta_rank for rank in ranks)
        for seat, rank in enumerate(ranks):
            speaks = store is not None and seat == 0
            between = CollectivePlan("gloo", store, generation, number, len(nodes)) if speaks and store else None
            plan = SharedMemoryPlan(segment, size, len(ranks), slots, seat, len(nodes), between)
            members[rank] = Membership(generation, plan)
    return [members[rank] for rank in range(len(places))]
