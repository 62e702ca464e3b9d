"""A run's speed, time, traffic and memory on machines that are not here, from costs that were measured.

Pure arithmetic, no torch and no Ray. A step is the work of the busiest learner, then an exchange: a sum in the memory
of each node and a ring all-reduce between nodes, or an all-reduce of all GPUs. A late shift (`shift_delay: 1`) lets the
exchange run beside the next step's work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

FLOAT_BYTES, SUM_BYTES = 4, 8  # of parameters; of exact sums, which are what is exchanged
TASK_VECTORS = 3  # parameters, gradients and momentum of a task
OWN_VECTORS = 4  # of a process: phi, its sum, the total, delta


@dataclass(frozen=True)
class PlannedWork:
    """What is computed.

    Example: PlannedWork({"cub": 0.5, "svhn": 0.1}, floats=269072, inner_steps=1000, trajectories=200)
    """

    costs: Mapping[str, float]  # seconds of one inner step of each task on one learner
    floats: int  # backbone parameters
    inner_steps: int
    trajectories: int
    steps_per_update: float = 1  # inner steps between two meta-updates
    shift_delay: int = 0
    task_bytes: Mapping[str, float] = field(default_factory=dict)  # activations of each task's step


@dataclass(frozen=True)
class Cluster:
    """What computes it. Bandwidths in bytes per second, times in seconds.

    Example: Cluster(workers=8, workers_per_node=4, bandwidth=12.5e9, latency=2e-5)
    """

    workers: int
    workers_per_node: int
    bandwidth: float  # of one node's link to the others
    latency: float  # of one message between nodes
    _: KW_ONLY
    direct: bool = False  # learners all-reduce among themselves (NCCL); else nodes do, after a sum in shared memory
    inner_bandwidth: float = 1e10  # between the GPUs of one node
    memory_bandwidth: float = 1e10  # of a node's memory, for the sum inside it
    touch_seconds: float = 0.0  # per task and float: theta - phi, its sum, the shift
    meet_seconds: float = 0.0  # for the processes of one node to find that all have come
    base_bytes: float = 0.0  # of a process with nothing loaded but the program

    @property
    def nodes(self) -> int:
        return math.ceil(self.workers / self.workers_per_node)


@dataclass(frozen=True)
class RunForecast:
    """What to expect; `steps_per_s` counts steps of all tasks together."""

    steps_per_s: float
    hours: float
    compute_s: float
    exchange_s: float
    utilisation: float
    bytes_between_nodes: float  # of the whole run, over the links of all nodes
    bytes_per_step: float  # that one node's link carries, one way
    learner_bytes: float  # memory of the largest learner


def pack_longest_first(costs: Mapping[str, float], learners: int) -> list[list[str]]:
    """The engine's packing: the costliest task first, each to the learner with the least work."""
    from rayctsl.cluster.packing import pack

    return [list(names) for names in pack(costs, learners).learners]


def ring_seconds(size: float, members: int, bandwidth: float, latency: float) -> float:
    """A ring all-reduce of `size` bytes: 2 (n - 1) messages one after the other, each of a member's share.

    Reference: reduce-scatter then all-gather; every link carries 2 (n - 1) / n of the vector.
    """
    return 2 * (members - 1) * (latency + size / members / bandwidth) if members > 1 else 0.0


def tree_seconds(size: float, members: int, bandwidth: float, latency: float) -> float:
    """An all-reduce up and down two binary trees that share the links: few messages, but twice the vector."""
    return 2 * math.ceil(math.log2(members)) * latency + 2 * size / bandwidth if members > 1 else 0.0


def exchange_seconds(floats: int, cluster: Cluster) -> float:
    """From the last learner's sum to the total in every process."""
    size = SUM_BYTES * (floats + 1)
    if cluster.workers == 1:
        return 0.0
    if cluster.direct:
        slowest = cluster.bandwidth if cluster.nodes > 1 else cluster.inner_bandwidth
        ways = (way(size, cluster.workers, slowest, cluster.latency) for way in (ring_seconds, tree_seconds))
        return min(ways)  # NCCL chooses, too
    learners = min(cluster.workers, cluster.workers_per_node)
    # Every learner writes its slot, all slots are read and one total written, and every process reads the total.
    through_memory = (3 * learners + 2) * size / cluster.memory_bandwidth
    between = ring_seconds(size, cluster.nodes, cluster.bandwidth, cluster.latency)
    return cluster.meet_seconds + through_memory + between


def predict(job: PlannedWork, cluster: Cluster, packing: Sequence[Sequence[str]] | None = None) -> RunForecast:
    """Steps per second, hours, bytes and memory of a run; `packing` in place of the engine's own."""
    if cluster.workers > len(job.costs):
        raise ValueError(f"{cluster.workers} learners for {len(job.costs)} tasks: at least one would be idle")
    hosted = packing if packing is not None else pack_longest_first(job.costs, cluster.workers)
    touch = cluster.touch_seconds * job.floats / job.steps_per_update
    loads = [sum(job.costs[name] for name in names) for names in hosted]
    compute = max(load + touch * len(names) for load, names in zip(loads, hosted, strict=True))
    exchange = exchange_seconds(job.floats, cluster)
    per_step = exchange / job.steps_per_update
    step = max(compute, per_step) if job.shift_delay else compute + per_step
    steps = job.inner_steps * job.trajectories
    ring, size = (cluster.workers if cluster.direct else cluster.nodes), SUM_BYTES * (job.floats + 1)
    by_link = 2 * (ring - 1) / ring * size / job.steps_per_update
    vector = FLOAT_BYTES * job.floats
    memory = max(
        cluster.base_bytes
        + (TASK_VECTORS * len(names) + OWN_VECTORS) * vector
        + max((job.task_bytes.get(name, 0.0) for name in names), default=0.0)
        for names in hosted
    )
    return RunForecast(
        steps_per_s=1 / step,
        hours=steps * step / 3600,
        compute_s=compute,
        exchange_s=exchange,
        utilisation=sum(loads) / (len(loads) * step),
        bytes_between_nodes=by_link * cluster.nodes * steps if cluster.nodes > 1 else 0.0,
        bytes_per_step=by_link if cluster.nodes > 1 else 0.0,
        learner_bytes=memory,
    )
