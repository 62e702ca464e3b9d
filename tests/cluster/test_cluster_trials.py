"""What a trial of a sweep reserves, and the engine that it gets there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.util.placement_group import placement_group, remove_placement_group

from rayctsl.cluster import trials
from rayctsl.cluster.engine import RayEngine
from rayctsl.config import TopologyConfig
from rayctsl.learning.engine import LocalEngine


@pytest.mark.ray
def test_a_trial_of_one_learner_reserves_its_own_process_alone(ray_cluster):
    topology = TopologyConfig(cpus_per_learner=2, gpus_per_learner=0.5, meta_resources={"coordinator": 1})
    learner = {"CPU": 2.0, "GPU": 0.5}
    assert trials.trial_bundles(topology, 1) == [learner]
    assert trials.trial_bundles(topology, 2) == [{"CPU": 0}, learner, learner, {"coordinator": 1}]


@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 2])
def test_a_trials_engine_gives_the_phi_of_one_process(kept_actors, tiny_problem, monkeypatch, workers):
    problem = tiny_problem(2, topology={"workers": workers})
    bundles = [bundle for bundle in trials.trial_bundles(problem.config.topology, workers) if any(bundle.values())]
    placement = placement_group(bundles)  # Tune makes it, without the empty ones
    monkeypatch.setattr(trials, "get_current_placement_group", lambda: placement)
    engine = trials.trial_engine(problem, workers)
    try:
        assert isinstance(engine, LocalEngine if workers == 1 else RayEngine)
        engine.start(None)
        engine.run(0, 4)
        phi = engine.capture(4).result().meta["phi"]
    finally:
        engine.close()
        remove_placement_group(placement)
    here = LocalEngine(problem)
    here.run(0, 4)
    assert torch.equal(phi, here.meta.phi)


def test_of_a_lost_trial_the_end_of_its_traceback_is_told():
    told: list[str | None] = []
    watcher: Any = SimpleNamespace(ended=lambda name, overrides, error: told.append(error))
    for text in ("Failure # 1\nTraceback (most recent call last):\n  …\nOSError: no space left \n\n", None):
        trial: Any = SimpleNamespace(config={trials.PARAMETERS: {}}, get_error=lambda text=text: text)
        trials._Callback(watcher).on_trial_error(1, [], trial)
    assert told == ["OSError: no space left", "its processes died"]


def test_the_end_of_a_trial_is_not_told_as_another_report():
    told: list[Any] = []
    callback = trials._Callback(SimpleNamespace(reported=lambda name, report: told.append(report)))  # type: ignore[arg-type]
    for result in ({"step": 4}, {"step": 8, "done": True}):
        callback.on_trial_result(1, [], SimpleNamespace(), result)  # type: ignore[arg-type]
    assert told == [{"step": 4}]


def test_optuna_suggests_first_what_was_interrupted_and_looks_for_the_highest():
    waiting = [{"beta": 0.25, "K": 4}]
    search: Any = trials.build_optuna(
        "accuracy", {"beta": (1e-3, 1.0)}, {"K": (2, 4)}, seed=0, waiting=waiting, done=[({"beta": 0.5, "K": 2}, 20.0)]
    )
    assert search.suggest("first") == {trials.PARAMETERS: waiting[0]}
    assert search.suggest("second") != {trials.PARAMETERS: waiting[0]}
    assert search._ot_study.direction.name == "MAXIMIZE"
