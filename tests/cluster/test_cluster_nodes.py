"""Several nodes: shared memory inside each, one vector per node across, and nodes and processes lost on the way."""

from __future__ import annotations

import pytest
import ray
import torch

from rayctsl.bench.chaos import Killer, compare
from rayctsl.cluster.engine import RayEngine
from rayctsl.learning.engine import LocalEngine

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def more_nodes(ray_nodes):
    """Two nodes of 3 CPUs beside the head, which has 4: learners of 3 CPUs each have a node of their own."""
    nodes = [ray_nodes.add_node(num_cpus=3, resources=more) for more in ({}, {"coordinator": 1})]
    yield nodes
    for node in nodes:
        ray_nodes.remove_node(node)


def test_nodes_learners_and_the_meta_learner_may_die(ray_nodes, more_nodes, tmp_path):
    killer = Killer(["node", "learner", "meta-learner"], ray_nodes, more_nodes, num_cpus=3)
    result = compare(killer, num_learners=3, steps=240, transport="collective", folder=str(tmp_path))
    assert result["kills"] == {"node": 1, "learner": 1, "meta-learner": 1}
    assert result["recoveries"] >= 3
    assert result["phi_identical"]


def test_the_meta_learner_may_have_a_node_to_itself(ray_nodes, tiny_problem):
    node = ray_nodes.add_node(num_cpus=0, resources={"coordinator": 1})
    problem = tiny_problem(3, topology={"workers": 2, "meta_resources": {"coordinator": 1}})
    engine = RayEngine(problem, measure_costs=False)
    engine.start(None)
    engine.run(0, 10)
    places = ray.get([actor.place.remote() for actor in [*engine.learners, engine.meta]])
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    ray_nodes.remove_node(node)
    assert places[-1].node == node.node_id not in {place.node for place in places[:-1]}
    local = LocalEngine(problem)
    local.run(0, 10)
    assert torch.equal(phi, local.meta.phi)


def test_two_nodes_give_the_phi_of_one_process(ray_nodes, more_nodes, tiny_problem):
    topology = {"workers": 2, "cpus_per_learner": 3, "meta_resources": {"coordinator": 1}}
    problem = tiny_problem(2, topology=topology)
    engine = RayEngine(problem)
    engine.start(None)
    engine.run(0, 10)
    nodes = {place.node for place in ray.get([actor.place.remote() for actor in engine.learners])}
    assert ray.get(engine.meta.place.remote()).node == more_nodes[1].node_id  # the one with a coordinator
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    local = LocalEngine(problem)
    local.run(0, 10)
    assert len(nodes) == 2
    assert torch.equal(phi, local.meta.phi)
