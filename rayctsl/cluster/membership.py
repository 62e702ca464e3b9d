"""Who exchanges with whom in one generation of a group: every actor's part, the meta-learner's last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayctsl.cluster.transport import NodePlan


@dataclass(frozen=True)
class Place:
    """Where an actor lives. Example: Place(node="3f2a…", address="10.0.0.7", pid=4711)"""

    node: str
    address: str
    pid: int


@dataclass(frozen=True)
class Membership:
    """An actor's part: shared memory in its node, a collective between processes, or mail.

    Everything absent means that this process exchanges with nobody.
    """

    rank: int
    generation: str
    node_plan: NodePlan | None = None
    across: tuple[str, tuple[str, int], int, int] | None = None  # backend, store address, rank, world
    mailbox: Any = None  # the meta-learner's handle; for itself the number of learners


def alone(generation: str) -> list[Membership]:
    """One learner that has all tasks; the meta-learner follows it from chunk to chunk."""
    return [Membership(rank, generation) for rank in range(2)]


def by_mail(generation: str, meta_learner: Any, num_learners: int) -> list[Membership]:
    """Every learner sends its sum to the meta-learner as a Ray call."""
    learners = [Membership(rank, generation, mailbox=meta_learner) for rank in range(num_learners)]
    return [*learners, Membership(num_learners, generation, mailbox=num_learners)]


def by_nccl(generation: str, store: tuple[str, int], num_learners: int) -> list[Membership]:
    """Learners with a GPU each all-reduce among themselves; the meta-learner follows from chunk to chunk."""
    ranks = range(num_learners)
    learners = [Membership(rank, generation, across=("nccl", store, rank, num_learners)) for rank in ranks]
    return [*learners, Membership(num_learners, generation)]


def by_shared_memory(
    generation: str, places: list[Place], size: int, store: tuple[str, int] | None
) -> list[Membership]:
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
            plan = NodePlan(segment, size, members=len(ranks), slots=slots, place=seat, nodes=len(nodes))
            across = ("gloo", store, number, len(nodes)) if store is not None and seat == 0 else None
            members[rank] = Membership(rank, generation, plan, across)
    return [members[rank] for rank in range(len(places))]
