"""The engine on Ray gives the phi of the loop in one process, by every transport and for every method."""

from __future__ import annotations

import pytest
import torch

from rayctsl.cluster.engine import RayEngine, run_on_ray
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.run import run_local
from rayctsl.methods import METHODS

TRAINING = [name for name, method in METHODS.items() if method.trains]

pytestmark = pytest.mark.ray


def phi_of(engine, steps: int, state=None) -> torch.Tensor:
    engine.start(state)
    try:
        middle = steps // 2 + 1
        engine.run(0, middle)
        engine.run(middle, steps)
        return engine.capture(steps).result().meta["phi"]
    finally:
        engine.close()


@pytest.mark.parametrize("transport", ["collective", "objects"])
def test_two_learners_of_one_task_each_give_the_bits_of_one_process(ray_cluster, tiny_problem, transport):
    problem = tiny_problem(2, topology={"workers": 2, "transport": transport})
    assert torch.equal(phi_of(LocalEngine(problem), 10), phi_of(RayEngine(problem), 10))


@pytest.mark.parametrize("method", TRAINING)
def test_every_method_gives_the_same_phi_on_ray(ray_cluster, tiny_problem, method):
    problem = tiny_problem(
        3, inner_steps=3, method={"name": method, "beta": 0.05}, topology={"workers": 1 if method == "single" else 2}
    )
    here, there = phi_of(LocalEngine(problem), 6), phi_of(RayEngine(problem), 6)
    assert torch.equal(there, here)
    assert not torch.equal(here, LocalEngine(problem).meta.phi), "phi must have moved"


def test_one_learner_needs_no_transport_and_is_exact(ray_cluster, tiny_problem):
    problem = tiny_problem(3, topology={"workers": 1})
    assert torch.equal(phi_of(LocalEngine(problem), 10), phi_of(RayEngine(problem), 10))


def test_late_shifts_travel_in_the_background(ray_cluster, tiny_problem):
    problem = tiny_problem(2, method={"name": "shifting", "beta": 0.2, "shift_delay": 1}, topology={"workers": 2})
    late = phi_of(RayEngine(problem), 10)
    assert torch.equal(phi_of(LocalEngine(problem), 10), late)
    prompt = tiny_problem(2, method={"name": "shifting", "beta": 0.2}, topology={"workers": 2})
    assert not torch.equal(phi_of(LocalEngine(prompt), 10), late)


def test_whole_run_leaves_the_same_initialization_as_run_local(ray_cluster, tiny_problem, new_folder):
    problem = tiny_problem(2, topology={"workers": 2})
    here = run_local(problem.config, new_folder(problem), problem)
    there = run_on_ray(problem.config, new_folder(problem), problem)
    assert here.card.sha256 == there.card.sha256
    assert there.card.spent == {"inner": 20, "held_out": 0, "hessian": 0}


def test_too_small_a_cluster_is_refused_at_once(ray_cluster, tiny_problem):
    problem = tiny_problem(4, topology={"workers": 4, "cpus_per_learner": 2})
    with pytest.raises(ValueError, match=r"8 CPU asked for, .* free of 4"):
        RayEngine(problem).start(None)


def test_more_workers_than_tasks_are_refused(ray_cluster, tiny_problem):
    with pytest.raises(ValueError, match="idle"):
        RayEngine(tiny_problem(2, topology={"workers": 3})).start(None)
