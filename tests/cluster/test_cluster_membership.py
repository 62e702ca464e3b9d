"""Who exchanges with whom: sums inside each node by shared memory, between nodes by the first of each."""

from __future__ import annotations

import pytest

from rayctsl.cluster.exchange import CollectivePlan, SharedMemoryPlan
from rayctsl.cluster.exchange.collective import StoreAddress
from rayctsl.cluster.membership import Membership, Place, arrange

STORE = StoreAddress("10.0.0.1", 4000)


def places(*nodes: str) -> list[Place]:
    return [Place(node, f"10.0.0.{number}", number) for number, node in enumerate(nodes)]


def plans(*nodes: str) -> list[SharedMemoryPlan]:
    """Of learners on these nodes and, last, of the meta-learner."""
    members = arrange("collective", "run-1", list(nodes), places(*nodes), 7, lambda: STORE)
    return [member.plan for member in members]


def test_on_one_node_everybody_sits_at_one_table_and_the_meta_learner_brings_nothing():
    assert plans("a", "a", "a") == [SharedMemoryPlan("rayctsl-run-1-0", 7, 3, 2, seat, 1, None) for seat in range(3)]


def test_the_first_of_each_node_speaks_for_it():
    """Two learners on one node, one on another, and the meta-learner with the first, then on a node of its own."""

    def between(number: int, nodes: int) -> CollectivePlan:
        return CollectivePlan("gloo", STORE, "run-1", number, nodes)

    assert plans("a", "b", "a", "a") == [
        SharedMemoryPlan("rayctsl-run-1-0", 7, 3, 2, 0, 2, between(0, 2)),
        SharedMemoryPlan("rayctsl-run-1-1", 7, 1, 1, 0, 2, between(1, 2)),
        SharedMemoryPlan("rayctsl-run-1-0", 7, 3, 2, 1, 2, None),
        SharedMemoryPlan("rayctsl-run-1-0", 7, 3, 2, 2, 2, None),
    ]
    assert plans("a", "a", "b") == [
        SharedMemoryPlan("rayctsl-run-1-0", 7, 2, 2, 0, 2, between(0, 2)),
        SharedMemoryPlan("rayctsl-run-1-0", 7, 2, 2, 1, 2, None),
        SharedMemoryPlan("rayctsl-run-1-1", 7, 1, 0, 0, 2, between(1, 2)),
    ]


def test_learners_with_a_gpu_each_need_no_meta_learner_among_them():
    members = arrange("nccl", "run-1", ["x", "y", "meta"], places("a", "b", "a"), 7, lambda: STORE)
    assert [member.plan for member in members] == [
        CollectivePlan("nccl", STORE, "run-1", 0, 2),
        CollectivePlan("nccl", STORE, "run-1", 1, 2),
        None,
    ]


def test_another_release_is_refused():
    Membership("run-1").check()
    with pytest.raises(ValueError, match="install the same rayctsl on all nodes"):
        Membership("run-1", version=99).check()
