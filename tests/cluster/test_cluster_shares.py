"""How many learners a cluster has room for, and what each asks for; its nodes are played."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rayctsl.cluster import resources
from rayctsl.config import TopologyConfig

Nodes = list[dict[str, float]]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """What the living nodes have; a dead one has been far larger."""
    living: Nodes = []
    dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    monkeypatch.setattr(resources.ray, "nodes", lambda: [dead, *({"Alive": True, "Resources": n} for n in living)])
    monkeypatch.setattr(resources.ray, "cluster_resources", lambda: resources.sum_bundles(living))
    monkeypatch.setattr(resources.ray, "available_resources", lambda: {"CPU": 1.0})
    return living


def test_a_learner_lies_on_one_living_node_with_all_that_it_asks_for(nodes: Nodes):
    nodes += [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 5.0}]
    # Of 2 CPUs each: two on the first node, two on the second, where one is left over.
    assert resources.count_room(TopologyConfig(cpus_per_learner=2, gpus_per_learner=0)) == 4
    assert resources.count_room(TopologyConfig(cpus_per_learner=2, gpus_per_learner=1)) == 1


def test_there_are_as_many_learners_as_tasks_and_room_allow(nodes: Nodes):
    nodes += [{"CPU": 4.0}]
    topology = TopologyConfig(gpus_per_learner=0)
    assert [resources.choose_num_learners(topology, tasks) for tasks in (2, 8)] == [2, 4]
    assert resources.choose_num_learners(topology.model_copy(update={"workers": 6}), 8) == 6, "as the config says"
    with pytest.raises(ValueError, match="6 workers for 5 tasks: at least one would be idle"):
        resources.choose_num_learners(topology.model_copy(update={"workers": 6}), 5)


def test_who_asks_for_nothing_is_placed_all_the_same(nodes: Nodes):
    """Ray refuses an empty bundle; this one takes no processor from anybody."""
    (bundle,) = resources.bundles_of(TopologyConfig(cpus_per_learner=0, gpus_per_learner=0), 1)
    assert 0 < bundle["CPU"] < 0.01


def test_a_run_begins_with_as_few_as_it_allows_and_else_says_what_is_missing(nodes: Nodes, monkeypatch):
    tried: list[int] = []

    def place(topology: TopologyConfig, count: int, wait_seconds: float = 0.0) -> Any:
        tried.append(count)
        return "group" if count <= room else None

    monkeypatch.setattr(resources, "_place", place)
    nodes += [{"CPU": 4.0}]
    topology, room = TopologyConfig(gpus_per_learner=0), 2
    assert resources.reserve(topology, most=6, least=2) == ("group", 2)
    assert tried == [6, 4, 3, 2], "no more than the nodes could hold"
    with pytest.raises(ValueError, match="too small for 3 learners: 3 CPU asked for, 1 free of 4"):
        resources.reserve(topology, most=6, least=3)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_that_nobody_listens_is_found_out_at_once(scheme: str):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            resources._check_listening(f"{scheme}127.0.0.1:{probe.getsockname()[1]}")
    resources._check_listening("auto")  # which Ray finds by itself
