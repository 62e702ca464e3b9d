"""What holds for every method, on quadratic tasks with a head and with batches that differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rayctsl.config import METHOD_CONFIGS
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.snapshot import RunState, read_snapshot, write_snapshot
from rayctsl.methods import METHODS, Step
from rayctsl.storage import Storage

T, K, M = 3, 4, 2
OPTIONS = {"fomaml_pp": {"every": 2, "anneal_trajectories": 3}, "single": {"source": "quadratic-2"}}
MOMENTUM = {"optimizer": "momentum", "alpha": 0.05, "weight_decay": 0.01}

TRAINED = [name for name, kind in METHOD_CONFIGS.items() if kind.trains]

every_method = pytest.mark.parametrize("name", list(METHODS))
trained_methods = pytest.mark.parametrize("name", TRAINED)
variants = pytest.mark.parametrize(
    "method",
    [{"name": name, **OPTIONS.get(name, {})} for name in TRAINED]
    + [{"name": "shifting", "aggregate_every": every, "shift_delay": 1} for every in (1, 3)]
    + [{"name": "leap", "norm": False}],
    ids=lambda method: "-".join(map(str, method.values())),
)


def build(engine_of, tasks, method, **settings):
    if isinstance(method, str):
        method = {"name": method, **OPTIONS.get(method, {})}
    return engine_of(tasks, method, **{"inner_steps": K, "trajectories": M, "inner": MOMENTUM, **settings})


def run_all(engine: LocalEngine) -> LocalEngine:
    if engine.method.config.trains:
        engine.run(0, K * M)
    return engine


def flatten(state: RunState) -> dict[str, torch.Tensor]:
    tasks = {f"{name}.{key}": value for name, task in state.tasks.items() for key, value in task.items()}
    return {**{f"meta.{key}": value for key, value in state.meta.items()}, **tasks}


def assert_same(one: RunState, other: RunState) -> None:
    """Bit for bit."""
    left, right = flatten(one), flatten(other)
    assert left.keys() == right.keys()
    for key in left:
        assert torch.equal(left[key], right[key]), key


def test_every_method_has_a_config_and_every_config_a_method():
    assert METHODS.keys() == METHOD_CONFIGS.keys()


@every_method
def test_beta_zero_leaves_phi_untouched(quadratics, engine_of, phis_of, name):
    phis = phis_of(build(engine_of, quadratics(), {"name": name, "beta": 0.0}))
    np.testing.assert_array_equal(phis, phis[:1].repeat(len(phis), axis=0))


@every_method
def test_phi_moves_otherwise(quadratics, engine_of, phis_of, name):
    phis = phis_of(build(engine_of, quadratics(), name))
    moved = np.abs(phis[-1] - phis[0]).max()
    assert moved == 0 if name == "scratch" else moved > 0.01


@every_method
def test_order_of_tasks_does_not_matter(quadratics, engine_of, phis_of, name):
    tasks = quadratics()
    swapped = {key: tasks[key] for key in reversed(tasks)}
    there, back = (phis_of(build(engine_of, order, name)) for order in (tasks, swapped))
    np.testing.assert_allclose(there, back, rtol=0, atol=1e-13)


@variants
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_a_saved_run_continues_bit_for_bit(quadratics, engine_of, tmp_path, method, rule):
    tasks, settings = quadratics(), {"inner": {**MOMENTUM, "optimizer": rule}, "outer": {"optimizer": rule}}
    whole = build(engine_of, tasks, method, **settings)
    total = K * M
    storage = Storage(tmp_path)
    for step in range(total):
        write_snapshot(storage, whole.capture(step).result(), keep=total)
        whole.run(step, step + 1)
    # Every place: between trajectories, inside them, with a total on its way, between two aggregates.
    for step in range(total):
        resumed = LocalEngine(whole.problem)
        resumed.start(read_snapshot(storage, f"step-{step:09d}"))
        assert_same(resumed.capture(step).result(), read_snapshot(storage, f"step-{step:09d}"))
        resumed.run(step, total)
        assert_same(resumed.capture(total).result(), whole.capture(total).result())
        assert resumed.group.counts().tolist() == whole.group.counts().tolist()


@variants
def test_chunks_do_not_change_results(quadratics, engine_of, method):
    whole = build(engine_of, quadratics(), method)
    chunk = whole.run(0, K * M)
    for cut in range(1, K * M):
        halves = build(engine_of, quadratics(), method)
        first, second = halves.run(0, cut), halves.run(cut, K * M)
        assert_same(halves.capture(K * M).result(), whole.capture(K * M).result())
        np.testing.assert_array_equal(np.concatenate([first.losses, second.losses]), chunk.losses)
        np.testing.assert_array_equal(np.concatenate([first.delta_norms, second.delta_norms]), chunk.delta_norms)


@every_method
def test_gradients_are_counted(quadratics, engine_of, name):
    engine = run_all(build(engine_of, quadratics(), name))
    inner = {"accurate": T * M * K * (K + 1) // 2, "single": M * K, "scratch": 0}
    held_out = {
        "fomaml": T * M,
        "anil": T * M,
        "imaml": T * M,
        "fomaml_shifting": T * M * K,
        "fomaml_pp": T * M * math.ceil(K / 2),
    }
    hessian = {"imaml": T * M * 5}
    expected = [inner.get(name, T * M * K), held_out.get(name, 0), hessian.get(name, 0)]
    assert engine.group.counts().tolist() == expected


@every_method
def test_only_methods_that_say_so_touch_held_out_batches(quadratics, engine_of, name):
    class Guarded(type(quadratics()["quadratic-1"])):
        def loss(self, module, index, *, held_out=False):
            assert not held_out or METHODS[name].needs_held_out
            return super().loss(module, index, held_out=held_out)

    tasks = {key: Guarded(**vars(task)) for key, task in quadratics().items()}
    engine = run_all(build(engine_of, tasks, name))
    assert (engine.group.counts()[1] > 0) == METHODS[name].needs_held_out


@trained_methods
def test_losses_are_the_training_losses_before_the_step(quadratics, engine_of, name):
    tasks = quadratics()
    engine = build(engine_of, tasks, name)
    expected = [task.value(task.start, 0) for task in tasks.values() if task.name in engine.group.learners]
    chunk = engine.run(0, K)
    np.testing.assert_allclose(chunk.losses[0], expected, rtol=1e-14)
    every_step = engine.method.updates_at(Step(m=0, k=1, K=K))
    assert np.isfinite(chunk.delta_norms).tolist() == [every_step] * (K - 1) + [True]
