"""Several nodes: shared memory inside each, one vector per node across, and a node that is lost on the way."""

from __future__ import annotations

import threading
import time

import pytest
import ray
import torch

from rayctsl.cluster.loop import RayEngine
from rayctsl.learning.training import LocalEngine, run_local, train_with

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ONE_PER_NODE = {"workers": 3, "cpus_per_learner": 3}


@pytest.fixture
def two_more_nodes(ray_nodes):
    nodes = [ray_nodes.add_node(num_cpus=3) for _ in range(2)]
    yield nodes
    for node in nodes:
        if node in ray_nodes.list_all_nodes():
            ray_nodes.remove_node(node)


def test_three_nodes_agree_with_one_process_and_survive_the_loss_of_one(
    ray_nodes, two_more_nodes, tiny_problem, new_folder, capfd
):
    keys = {"inner_steps": 20, "trajectories": 4, "snapshot_every": 8}
    quick = tiny_problem(3, topology=ONE_PER_NODE, **keys)
    here = run_local(quick.config, new_folder(quick), quick)

    problem = tiny_problem(3, slow_seconds=0.03, topology=ONE_PER_NODE, **keys)
    engine = RayEngine(problem)
    seen_nodes: set[str] = set()

    def lose_a_node() -> None:
        while not (engine.learners and engine.packing and engine._loads.any()):
            time.sleep(0.1)
        seen_nodes.update(
            p.node for p in ray.get([a.place.options(concurrency_group="control").remote() for a in engine.learners])
        )
        ray_nodes.remove_node(two_more_nodes[-1], allow_graceful=False)
        two_more_nodes.append(ray_nodes.add_node(num_cpus=3))

    thread = threading.Thread(target=lose_a_node, daemon=True)
    thread.start()
    there = train_with(engine, problem, new_folder(problem))
    thread.join()
    assert len(seen_nodes) == 3
    assert "fault 1" in capfd.readouterr().err
    phi, other = here.phi(), there.phi()
    for name, value in phi.items():
        torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-6)

    again = tiny_problem(3, topology=ONE_PER_NODE, **keys)
    undisturbed = train_with(RayEngine(again), again, new_folder(again))
    assert undisturbed.card["sha256"] == there.card["sha256"]


def test_steps_are_the_same_whatever_the_nodes(ray_nodes, two_more_nodes, tiny_problem):
    problem = tiny_problem(2, topology={"workers": 2, "cpus_per_learner": 3})
    engine = RayEngine(problem)
    engine.start(None)
    engine.run(0, 10)
    nodes = {place.node for place in ray.get([actor.place.remote() for actor in engine.learners])}
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    local = LocalEngine(problem)
    local.run(0, 10)
    assert len(nodes) == 2
    assert torch.equal(phi, local.meta.phi), "the sum of two is the same in any order"
