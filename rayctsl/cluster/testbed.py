"""What measurements do to a cluster that runs would not: nodes of one's own, and calls straight into actors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray


class Testbed:
    """Several raylets on this machine, so that a node can really be lost."""

    __test__ = False

    def __init__(self, cluster: Any, nodes: list[Any], cpus_per_node: float):
        """
        Args:
            nodes: those that may be lost, never the head.
        """
        self.cluster, self.nodes, self.cpus_per_node = cluster, nodes, cpus_per_node
        self._lost = 0

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def ids(self) -> list[str]:
        """Of the nodes that may be lost."""
        return [str(node.node_id) for node in self.nodes]

    def lose(self, node_id: str) -> None:
        self.cluster.remove_node(self.nodes.pop(self.ids().index(node_id)), allow_graceful=False)
        self._lost += 1

    def replace_lost(self) -> None:
        """Only from the main thread, as Ray wants it."""
        while self._lost:
            self._lost -= 1
            self.nodes.append(self.cluster.add_node(num_cpus=self.cpus_per_node))


@contextmanager
def several_nodes(count: int, cpus_per_node: float = 1) -> Iterator[Testbed]:
    """A cluster of `count` nodes for a while, with nothing else on it; this process is not connected to it."""
    from ray.cluster_utils import Cluster

    settings = {"RAY_AUTH_MODE": "disabled", "RAY_IGNORE_UNHANDLED_ERRORS": "1", "RAY_worker_niceness": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus_per_node, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=cpus_per_node) for _ in range(count - 1)]
    try:
        yield Testbed(cluster, nodes, cpus_per_node)
    finally:
        cluster.shutdown()


def call_inside(actor: Any, function: Callable[..., Any], at_once: bool = False) -> Any:
    """Run `function(the actor's object)` in an actor's process, between two chunks or, in another thread, at once."""
    call = actor.__ray_call__
    return (call.options(concurrency_group="control") if at_once else call).remote(function)


def answers(references: Sequence[Any]) -> list[Any]:
    """What calls return."""
    return ray.get(list(references))


def start_idle_actors(kind: type, count: int) -> list[Any]:
    """Actors that take no room."""
    remote = ray.remote(kind).options(num_cpus=0)
    return [remote.remote() for _ in range(count)]


def stop_actors(actors: Sequence[Any]) -> None:
    for actor in actors:
        ray.kill(actor)
