"""The engine on Ray gives the phi of the loop in one process, by every transport and for every method."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import ray
import torch

from rayctsl.cluster.engine import RayEngine, run_on_ray
from rayctsl.cluster.packing import Packing
from rayctsl.config import METHOD_CONFIGS
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.run import run_local

TRAINING = [name for name, kind in METHOD_CONFIGS.items() if kind.trains]

pytestmark = pytest.mark.ray


def outcome(engine, steps: int) -> tuple[torch.Tensor, np.ndarray]:
    """phi and the losses [steps, tasks] of a run in two chunks."""
    engine.start(None)
    try:
        middle = steps // 2 + 1
        chunks = [engine.run(0, middle), engine.run(middle, steps)]
        return engine.capture(steps).result().meta["phi"], np.concatenate([chunk.losses for chunk in chunks])
    finally:
        engine.close()


def phi_of(engine, steps: int) -> torch.Tensor:
    return outcome(engine, steps)[0]


@pytest.mark.parametrize("transport", ["collective", "objects"])
def test_two_learners_of_one_task_each_give_the_bits_of_one_process(kept_actors, tiny_problem, transport):
    problem = tiny_problem(2, topology={"workers": 2, "transport": transport})
    assert torch.equal(phi_of(LocalEngine(problem), 10), phi_of(RayEngine(problem), 10))


@pytest.mark.parametrize("method", TRAINING)
def test_every_method_gives_the_same_phi_on_ray(kept_actors, tiny_problem, method):
    problem = tiny_problem(
        3, inner_steps=3, method={"name": method, "beta": 0.05}, topology={"workers": 1 if method == "single" else 2}
    )
    (here, losses), (there, losses_there) = outcome(LocalEngine(problem), 6), outcome(RayEngine(problem), 6)
    assert torch.equal(there, here)
    np.testing.assert_array_equal(losses_there, losses)  # every task in its own column
    assert not torch.equal(here, LocalEngine(problem).meta.phi), "phi must have moved"


def test_one_learner_needs_no_transport_and_is_exact(kept_actors, tiny_problem):
    problem = tiny_problem(3, topology={"workers": 1})
    assert torch.equal(phi_of(LocalEngine(problem), 10), phi_of(RayEngine(problem), 10))


@pytest.mark.parametrize("transport", ["collective", "objects"])
def test_late_shifts_travel_in_the_background(kept_actors, tiny_problem, transport):
    keys = {"topology": {"workers": 2, "transport": transport}}
    problem = tiny_problem(3, method={"name": "shifting", "beta": 0.2, "shift_delay": 1}, **keys)
    late = phi_of(RayEngine(problem), 10)
    assert torch.equal(phi_of(LocalEngine(problem), 10), late)
    prompt = tiny_problem(3, method={"name": "shifting", "beta": 0.2}, **keys)
    assert not torch.equal(phi_of(LocalEngine(prompt), 10), late)


def test_tasks_move_in_mid_trajectory_without_changing_a_bit(kept_actors, tiny_problem):
    problem = tiny_problem(3, method={"name": "shifting", "beta": 0.2, "shift_delay": 1}, topology={"workers": 2})
    engine = RayEngine(problem)
    engine.start(None)
    engine.run(0, 4)
    assert engine.packing is not None
    moved = engine.packing.changed(learners=[["task-2"], ["task-1", "task-0"]])
    engine.balance.improve = lambda: moved  # type: ignore[method-assign]  # as when a learner turns slow
    engine.run(4, 10)
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    assert engine.packing == moved
    assert torch.equal(phi, phi_of(LocalEngine(problem), 10))


def test_a_newcomer_joins_in_mid_trajectory_without_changing_a_bit(kept_actors, tiny_problem, monkeypatch):
    problem = tiny_problem(3, topology={"workers": 2})
    engine = RayEngine(problem)
    engine.start(None)
    engine.run(0, 2)
    state = engine.capture(2).result()
    engine.team.learners.pop()  # lost, as far as the team knows
    with monkeypatch.context() as no_room:
        no_room.setattr(engine.team, "_start_missing", lambda: None)
        engine.start(state)
        engine.run(2, 4)
        assert [len(names) for names in engine.packing.learners] == [3]
    engine.team._start_missing()
    ray.wait([member.placed for member in engine.team._starting], num_returns=1)
    engine.run(4, 10)
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    assert sorted(len(names) for names in engine.packing.learners) == [1, 2]
    assert torch.equal(phi, phi_of(LocalEngine(problem), 10))


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_a_snapshot_goes_on_with_any_number_of_learners(kept_actors, tiny_problem, workers):
    keys = {"method": {"name": "shifting", "beta": 0.2, "shift_delay": 1}, "outer": {"optimizer": "momentum"}}
    two, other = (tiny_problem(4, topology={"workers": count}, **keys) for count in (2, workers))
    engine = RayEngine(two)
    engine.start(None)
    engine.run(0, 4)
    state = engine.capture(4).result()
    engine.close()
    engine = RayEngine(other)
    engine.start(state)
    assert len(engine.learners) == workers
    engine.run(4, 10)
    phi = engine.capture(10).result().meta["phi"]
    engine.close()
    assert torch.equal(phi, phi_of(LocalEngine(two), 10))


class HeldUp(RayEngine):
    """Has to wait for the processor when the learners have their calls, and the meta-learner not yet."""

    @property
    def _meta_follows(self) -> bool:
        time.sleep(0.3)
        return super()._meta_follows


def test_a_chunks_time_begins_with_its_first_call(kept_actors, tiny_problem):
    engine = HeldUp(tiny_problem(1, topology={"workers": 1}))
    engine.start(None)
    chunk = engine.run(0, 4)
    engine.close()
    assert chunk.seconds >= 0.3
    assert 0 < chunk.facts["utilisation"] < 1


def test_whole_run_leaves_the_same_initialization_as_run_local(kept_actors, tiny_problem, new_folder):
    problem = tiny_problem(2, topology={"workers": 2})
    here = run_local(problem.config, new_folder(problem), problem)
    there = run_on_ray(problem.config, new_folder(problem), problem)
    assert here.card.sha256 == there.card.sha256
    assert there.card.spent == {"inner": 20, "held_out": 0, "hessian": 0}


def test_a_resumed_run_keeps_the_packing_of_its_snapshot(kept_actors, tiny_problem):
    problem = tiny_problem(3, topology={"workers": 2})
    state = LocalEngine(problem).capture(0).result()
    odd = Packing(learners=(("task-0",), ("task-1", "task-2")), expected_utilisation=0.5)
    engine = RayEngine(problem)
    costs = {"task-0": 0.5, "task-1": 0.25, "task-2": 0.125}
    engine.start(replace(state, facts={"packing": odd.to_json(), "costs": costs}))
    engine.close()
    assert engine.packing == odd
    assert engine.balance.costs == costs  # nobody measures them again


def test_a_rebuilt_group_is_another_generation(kept_actors, tiny_problem):
    """What a late survivor of the last one still says must reach nobody."""
    engine, generations = RayEngine(tiny_problem(2, topology={"workers": 2})), []
    memberships = engine._memberships

    def watched(*arguments):
        made = memberships(*arguments)
        generations.append({member.generation for member in made})
        return made

    engine._memberships = watched  # type: ignore[method-assign]
    engine.start(None)
    engine.start(None)
    engine.close()
    assert [len(each) for each in generations] == [1, 1]
    assert generations[0].isdisjoint(generations[1])


def test_too_small_a_cluster_is_refused_at_once(ray_cluster, tiny_problem):
    problem = tiny_problem(4, topology={"workers": 4, "min_workers": 4, "cpus_per_learner": 2})
    with pytest.raises(ValueError, match=r"8 CPU asked for, .* free of 4"):
        RayEngine(problem).start(None)


def test_fewer_learners_than_wanted_do_too(kept_actors, tiny_problem):
    engine = RayEngine(tiny_problem(4, topology={"workers": 4, "min_workers": 2, "cpus_per_learner": 2}))
    engine.start(None)
    assert len(engine.learners) == 2
    engine.close()


def test_more_workers_than_tasks_are_refused(ray_cluster, tiny_problem):
    with pytest.raises(ValueError, match="idle"):
        RayEngine(tiny_problem(2, topology={"workers": 3})).start(None)
