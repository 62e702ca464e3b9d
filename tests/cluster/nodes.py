"""Nodes that a test adds to the session's cluster, and takes away again."""

from __future__ import annotations

import time
from typing import Any


def remove_node(cluster: Any, node: Any) -> None:
    """Gone once the cluster knows: until then it offers the node's CPUs and GPUs to whatever test comes next."""
    import ray

    cluster.remove_node(node)
    deadline = time.monotonic() + 60
    while not _has_settled(ray.nodes(), ray.cluster_resources(), node.node_id):
        assert time.monotonic() < deadline, "the cluster still counts a node that was removed"
        time.sleep(0.05)


def _has_settled(nodes: list[dict[str, Any]], offered: dict[str, float], gone: str) -> bool:
    alive = [each for each in nodes if each["Alive"]]
    there = {name: sum(each["Resources"].get(name, 0) for each in alive) for name in ("CPU", "GPU")}
    return all(each["NodeID"] != gone for each in alive) and all(offered.get(name, 0) == there[name] for name in there)
