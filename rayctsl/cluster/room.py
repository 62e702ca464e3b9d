"""Whether a cluster has room for bundles of resources, each of which must fit on one node."""

from __future__ import annotations

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from rayctsl.cluster.resources import sum_bundles

Bundle = dict[str, float]


def check_room(bundles: list[Bundle], what: str, wait_seconds: float = 0.0) -> None:
    """Refuse a cluster that cannot hold the bundles at once: Ray would wait for ever."""
    bundles = [bundle for bundle in bundles if any(bundle.values())]
    missing = shortfall(bundles, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    if missing and not (wait_seconds and _becomes_ready(bundles, wait_seconds)):
        total, asked = ray.cluster_resources(), sum_bundles(bundles)
        parts = [
            f"{asked[name]:g} {name} asked for, {total.get(name, 0):g} in the cluster, {amount:g} missing"
            for name, amount in missing.items()
        ]
        raise ValueError(f"the cluster is too small for {what}: {'; '.join(parts)}")


def shortfall(bundles: list[Bundle], nodes: list[Bundle]) -> Bundle:
    """What is missing to place all bundles, largest first, each on one node; empty when they fit."""
    free, left_over = [dict(node) for node in nodes], list[Bundle]()
    for bundle in sorted(bundles, key=lambda bundle: sorted(bundle.items()), reverse=True):
        fitting = (n for n in free if all(n.get(name, 0) + 1e-6 >= amount for name, amount in bundle.items()))
        node = next(fitting, None)
        if node is None:
            left_over.append(bundle)
            continue
        for name, amount in bundle.items():
            node[name] -= amount
    return sum_bundles(left_over)


def num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _becomes_ready(bundles: list[Bundle], seconds: float) -> bool:
    """Ask for the room and wait: that is what makes a cluster grow."""
    group = placement_group(bundles)
    try:
        return bool(group.wait(timeout_seconds=seconds))
    finally:
        remove_placement_group(group)
