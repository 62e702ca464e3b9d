"""The synthetic experiment: the vectorised group against reference trajectories and against the ordinary group."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayctsl.experiments.synthetic.run import losses_along, meta_train, synthetic_config
from rayctsl.experiments.synthetic.statistics import EDGE_STARTS, compare, drawn_environments, intervals, quality_along
from rayctsl.experiments.synthetic.surface_group import SurfaceGroup, flatten_points, unflatten_points
from rayctsl.experiments.synthetic.surfaces import Environment, Surfaces
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.problem import Problem
from rayctsl.methods import METHODS

TESTS = Path(__file__).parents[2]
REFERENCE = TESTS / "assets" / "synthetic"
GOLDEN = json.loads((TESTS / "golden" / "surfaces.json").read_text())
VECTORISED = [name for name in METHODS if name not in ("leap", "imaml", "single", "scratch", "anil")]


@pytest.fixture(scope="module")
def golden_environment() -> Environment:
    return Environment(**{key: np.array(value, float) for key, value in GOLDEN["environment"].items()})


@pytest.mark.parametrize("golden", GOLDEN["runs"], ids=lambda golden: golden["method"])
def test_meta_updates_are_those_of_the_reference(golden: dict[str, Any], golden_environment: Environment) -> None:
    config, chosen = synthetic_config(golden["method"]), golden["meta_updates"]
    steps = max(chosen) * (100 if golden["method"] == "reptile" else 1)
    config = config.model_copy(update={"trajectories": -(-steps // 100)})
    together = meta_train(golden_environment, golden["starts"], config).trajectory
    for number, expected in enumerate(golden["trajectories"]):
        np.testing.assert_allclose(together[chosen, number], expected, rtol=0, atol=1e-8)
    alone = meta_train(golden_environment, golden["starts"][0], config).trajectory
    np.testing.assert_allclose(alone[chosen, 0], golden["trajectories"][0], rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["shifting", "reptile", "accurate"])
def test_whole_reference_trajectories_from_all_starts_at_once(method: str) -> None:
    environment = Environment.load(REFERENCE / "environment.npz")
    trajectories = json.loads(gzip.decompress((REFERENCE / "trajectories.json.gz").read_bytes()))
    golden = [run for run in trajectories if run["method"] == method]
    run = meta_train(environment, [g["start"] for g in golden], synthetic_config(method))
    assert len(golden) == 3
    for start, expected in enumerate(g["result"] for g in golden):
        np.testing.assert_allclose(run.trajectory[:, start], expected["trajectory"], rtol=0, atol=1e-8)
        assert run.inner_steps == expected["inner_steps"]
        assert run.loss_after[start] == pytest.approx(expected["loss_after"], rel=0, abs=1e-8)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("method", VECTORISED)
def test_vectorised_group_equals_one_learner_per_task(method: str, optimizer: str) -> None:
    environment, start = Environment.draw(3), np.array([-5.0, 5.0])
    config = synthetic_config(method, inner_steps=6, trajectories=1, optimizer=optimizer, beta=0.05)
    engine = LocalEngine(Problem.of(config, tasks=environment.tasks(start)))
    chunk = engine.run(0, config.total_steps)
    losses: list[np.ndarray] = []
    run = meta_train(environment, start, config, watch=lambda group: losses.append(group.learner.heights[:, 0]))
    np.testing.assert_allclose(run.trajectory[-1, 0], engine.meta.phi.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.stack(losses), chunk.losses, rtol=0, atol=1e-9)
    assert run.inner_steps == chunk.counts[0]
    assert not np.allclose(run.trajectory[-1, 0], start)


def test_starts_and_environments_do_not_mix() -> None:
    environments = [Environment.draw(seed) for seed in (1, 2, 3)]
    starts = np.array([[-5.0, 5.0], [5.0, -5.0], [0.0, 1.0]])
    config = synthetic_config(inner_steps=20, trajectories=2)
    together = meta_train(environments, starts, config)
    for number, (environment, start) in enumerate(zip(environments, starts, strict=True)):
        alone = meta_train(environment, start, config)
        np.testing.assert_array_equal(together.trajectory[:, number], alone.trajectory[:, 0])
        np.testing.assert_array_equal(together.loss_after[number], alone.loss_after[0])
        assert together.inner_steps == alone.inner_steps


def test_slopes_are_the_gradients_of_the_heights() -> None:
    environment = Environment.draw(7)
    points = np.random.default_rng(0).uniform(-5, 15, (8, 2, 5))
    slopes = np.empty_like(points)
    heights = Surfaces([environment]).heights(points, slopes)
    for number, task in enumerate(environment.tasks(np.zeros(2)).values()):
        at = torch.tensor(points[number].T, requires_grad=True)
        height = task.height(at)
        height.sum().backward()
        assert at.grad is not None
        np.testing.assert_allclose(heights[number], height.detach().numpy(), rtol=1e-13)
        np.testing.assert_allclose(slopes[number], at.grad.numpy().T, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("method", "inner_steps"), [("shifting", 8 * 30), ("accurate", 8 * 3 * 55), ("reptile", 8 * 300)]
)
def test_methods_take_the_same_number_of_meta_updates(method: str, inner_steps: int) -> None:
    run = meta_train(Environment.draw(0), [(0, 0)], synthetic_config(method, inner_steps=10, trajectories=3))
    assert len(run.trajectory) == 31
    assert run.inner_steps == run.spent[-1] == inner_steps


@pytest.mark.parametrize("method", ["leap", "imaml", "single", "scratch"])
def test_methods_that_cannot_share_a_vector_run_too(method: str) -> None:
    run = meta_train(Environment.draw(0), [(-5, 5)], synthetic_config(method, inner_steps=3, trajectories=1))
    assert len(run.trajectory) == (1 if method == "scratch" else 4)
    assert np.isfinite(run.loss_after).all()


@pytest.mark.parametrize("method", ["leap", "imaml", "random_shifting"])
def test_methods_with_norms_refuse_several_starts(method: str) -> None:
    with pytest.raises(ValueError, match="one start at a time"):
        meta_train(Environment.draw(0), [(0, 0), (1, 1)], synthetic_config(method, inner_steps=2, trajectories=1))


def test_anil_is_refused() -> None:
    with pytest.raises(ValueError, match="no head"):
        meta_train(Environment.draw(0), [(0, 0)], synthetic_config("anil", inner_steps=2, trajectories=1))


def test_single_is_judged_on_all_tasks() -> None:
    environment = Environment.draw(0)
    run = meta_train(environment, [(-5, 5)], synthetic_config("single", inner_steps=50, trajectories=1))
    expected = losses_along(environment, run.trajectory[-1], synthetic_config(inner_steps=50))[-1]
    assert run.loss_after[0] == expected[0]
    assert run.inner_steps == 50


def test_losses_along_takes_the_steps_of_a_learner() -> None:
    environment, config = Environment.draw(0), synthetic_config(inner_steps=5)
    losses = losses_along(environment, np.array([[1.0, 2.0], [3.0, 4.0]]), config)
    group = SurfaceGroup(
        [environment], flatten_points(np.array([[3.0, 4.0]])), config, METHODS["reptile"](config.method)
    )
    for k in range(6):
        group.learner.compute_gradient(k)
        assert losses[k, 1] == pytest.approx(group.learner.heights.mean(), rel=1e-14)
        group.learner.apply_gradient()


def test_divergence_names_a_task() -> None:
    with pytest.raises(NonFiniteLoss, match="surface-"):
        meta_train(Environment.draw(0), [(90, -80)], synthetic_config(alpha=5.0, trajectories=1))


def test_points_survive_flattening() -> None:
    points = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(unflatten_points(flatten_points(points).numpy()), points)


def test_the_quality_of_an_environment_is_the_mean_over_its_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayctsl.experiments.synthetic.statistics.NUM_ENVIRONMENTS", 2)
    config = synthetic_config(inner_steps=4, trajectories=2)
    spent, quality = quality_along(config, seed=3, points=3)
    assert spent.tolist() == [8, 16, 64]  # 8 tasks; from 1 to 8 meta-updates, each time 2.8 times as many
    runs = [meta_train(environment, EDGE_STARTS, config) for environment in drawn_environments(3)]
    for number, (run, environment) in enumerate(zip(runs, drawn_environments(3), strict=True)):
        for row, update in enumerate((1, 2, 8)):
            losses = losses_along(environment, run.trajectory[update], synthetic_config())[100]
            assert quality[row, number] == pytest.approx(np.log10(losses).mean())
    last_spent, last = quality_along(config, seed=3, points=1)
    assert last_spent.tolist() == [64]
    np.testing.assert_array_equal(last, quality[-1:])


def test_intervals_are_those_of_the_rows() -> None:
    mean, half = intervals(np.array([[1.0, 3.0], [5.0, 5.0], [0.0, 4.0]]))
    assert mean.tolist() == [2, 5, 2]
    assert half.tolist() == pytest.approx([12.7062, 0, 25.4124], rel=1e-4)


def test_the_favourite_is_better_where_its_loss_is_smaller() -> None:
    result = compare({"ours": np.array([-3.0, -2.0, -1.0]), "theirs": np.array([-2.0, -1.5, -3.0])}, "ours")
    assert result["environments where ours is better than theirs"] == 2
    means = {name: value[0] for name, value in result.items() if isinstance(value, tuple)}
    assert means == {"ours": -2.0, "theirs": pytest.approx(-6.5 / 3), "ours - theirs": pytest.approx(0.5 / 3)}


def test_drawn_environment_is_the_papers() -> None:
    environment = Environment.draw(0)
    np.testing.assert_allclose(np.linalg.norm(environment.targets - 5, axis=1), 7)
    np.testing.assert_allclose(environment.coeff, [1 / 3, 11, 1 / 3, 7])
    assert not np.array_equal(environment.angles, Environment.draw(1).angles)
