"""Several nodes: shared memory inside each, one vector per node across, and nodes and processes lost on the way."""

from __future__ import annotations

import pytest
import ray
import torch

from rayctsl.bench.chaos import Disturbance, drive_under, report, undisturbed
from rayctsl.bench.killer import Killer
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.testbed import Testbed
from rayctsl.learning.engine import LocalEngine
from tests.cluster.nodes import remove_node

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def more_nodes(ray_nodes):
    """Beside the head of 4 CPUs a node of 3, so that learners of 3 live apart, and one for the meta-learner."""
    nodes = [ray_nodes.add_node(num_cpus=3), ray_nodes.add_node(num_cpus=0, resources={"coordinator": 1})]
    yield nodes
    for node in nodes:
        if node in ray_nodes.worker_nodes:
            remove_node(ray_nodes, node)


def test_two_nodes_and_one_for_the_meta_learner_give_the_phi_of_one_process(more_nodes, tiny_problem):
    topology = {"workers": 2, "cpus_per_learner": 3, "meta_resources": {"coordinator": 1}}
    problem = tiny_problem(3, topology=topology)
    engine = RayEngine(problem, measure_costs=False)
    engine.start(None)
    engine.run(0, 10)
    places = ray.get([actor.place.remote() for actor in [*engine.learners, engine.meta]])
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    assert len({place.node for place in places}) == 3
    assert places[-1].node == more_nodes[1].node_id
    local = LocalEngine(problem)
    local.run(0, 10)
    assert torch.equal(phi, local.meta.phi)


@pytest.mark.long
def test_nodes_learners_and_the_meta_learner_may_die(ray_nodes, tmp_path):
    nodes = [ray_nodes.add_node(num_cpus=3) for _ in range(2)]
    testbed = Testbed(ray_nodes, nodes, cpus_per_node=3)
    plan = ["node", "learner", "meta-learner"]
    disturbance = Disturbance(str(tmp_path), plan, 0, True, learners=3, steps=240, transport="collective", cpus=3)
    drive_under(Killer(plan, disturbance.journal, testbed), disturbance)
    result = report(disturbance, undisturbed(disturbance))
    for node in testbed.nodes:
        remove_node(ray_nodes, node)
    assert result["kills"] == {"node": 1, "learner": 1, "meta-learner": 1}
    assert result["recoveries"] >= 3
    assert result["phi_identical"]
