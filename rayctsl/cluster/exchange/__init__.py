"""How the learners' sums become one total, in every process at the same inner step: `connect(plan)` joins in.

A plan is one process's part, made by `cluster/membership.py`; each way of exchanging has a file of its own here.
"""

from __future__ import annotations

from rayctsl.cluster.exchange.collective import CollectivePlan, join_collective
from rayctsl.cluster.exchange.connection import Connection, Exchange, PeerLost
from rayctsl.cluster.exchange.ray_calls import RayCallsPlan, join_ray_calls
from rayctsl.cluster.exchange.shared_memory import SharedMemoryPlan, join_shared_memory

Plan = SharedMemoryPlan | CollectivePlan | RayCallsPlan

__all__ = ["CollectivePlan", "Connection", "PeerLost", "Plan", "RayCallsPlan", "SharedMemoryPlan", "connect"]


def connect(plan: Plan, timeout_seconds: float, in_background: bool = False) -> Connection:
    """Join the other processes of a plan; waits for them.

    Args:
        timeout_seconds: of silence after which a peer counts as lost.
        in_background: exchange in a thread of its own, so that the next gradient is computed meanwhile.
    """
    return Connection(_join(plan, timeout_seconds), in_background)


def _join(plan: Plan, timeout_seconds: float) -> Exchange:
    if isinstance(plan, SharedMemoryPlan):
        return join_shared_memory(plan, timeout_seconds)
    if isinstance(plan, CollectivePlan):
        return join_collective(plan, timeout_seconds)
    return join_ray_calls(plan, timeout_seconds)
