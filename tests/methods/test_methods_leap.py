"""Leap's meta-gradient against finite differences of the path length (or energy) that it claims to shorten."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

ALPHA, K, BETA = 0.6, 6, 1.0


def path_of(task, phi, head, first):
    """z after 0 .. K inner steps from phi, and the loss there: each on the batch that the next step would see."""
    z = np.concatenate([phi, head])
    path = [z]
    for index in range(first, first + K):
        z = z - ALPHA * task.gradient(z, index)
        path.append(z)
    return path, [task.value(z, first + i) for i, z in enumerate(path)]


def objective(task, path, losses, move, first, *, norm, loss, stabilizer):
    """Sum of segment lengths^p when every start moves by `move` and every end stays: Jacobians are the identity."""
    n, total = len(move), 0.0
    for i in range(K):
        start = np.concatenate([path[i][:n] + move, path[i][n:]])
        square = np.sum((path[i + 1] - start) ** 2)
        if loss:
            end = losses[i] - abs(losses[i + 1] - losses[i]) if stabilizer else losses[i + 1]
            square += (end - task.value(start, first + i)) ** 2
        total += np.sqrt(square) if norm else square
    return total


def numeric_gradient(function, size, width=1e-5):
    axes = np.eye(size) * width
    return np.array([(function(axis) - function(-axis)) / (2 * width) for axis in axes])


@pytest.mark.parametrize(("norm", "loss", "stabilizer"), list(itertools.product([True, False], repeat=3)))
def test_path_gradient(quadratics, engine_of, phis_of, norm, loss, stabilizer):
    tasks, options = quadratics(wobble=0.8), {"norm": norm, "loss": loss, "stabilizer": stabilizer}
    engine = engine_of(tasks, {"name": "leap", "beta": BETA, **options}, inner_steps=K, inner={"alpha": ALPHA})
    phi, heads = tasks["quadratic-1"].start[:4].copy(), {name: task.start[4:] for name, task in tasks.items()}
    expected, rises = [phi.copy()], 0
    for m in range(2):
        slopes = []
        for name, task in tasks.items():
            path, losses = path_of(task, phi, heads[name], m * K)
            rises += int((np.diff(losses) > 0).sum())

            def length(move, task=task, path=path, losses=losses, first=m * K):
                return objective(task, path, losses, move, first, **options)

            slopes.append(numeric_gradient(length, 4))
            heads[name] = path[-1][4:]
        phi = phi - BETA * np.mean(slopes, axis=0)
        expected.append(phi.copy())
    assert 0 < rises < 2 * 3 * K, "some losses must rise and others fall, or the stabilizer is not tested"
    np.testing.assert_allclose(phis_of(engine)[::K], expected, rtol=1e-7, atol=1e-7)


def test_one_step_by_hand(parabola, engine_of, phis_of):
    # From 0 with alpha = 1/4: theta = 1/4, the loss falls from 1/2 to 9/32, its gradient at 0 is -1.
    # Energy: -2 (dtheta + df grad) = -2 (1/4 + 7/32) = -15/16. Without the loss: -1/2. Length without it: -1.
    task = {"one": parabola("one", 1.0, 1.0)}
    settings = {"inner_steps": 1, "trajectories": 1, "inner": {"alpha": 0.25}}
    for options, expected in [
        ({"norm": False}, 15 / 16),
        ({"norm": False, "loss": False}, 1 / 2),
        ({"loss": False}, 1.0),
        ({}, (15 / 32) / np.hypot(1 / 4, 7 / 32)),
    ]:
        engine = engine_of(task, {"name": "leap", "beta": 1.0, **options}, **settings)
        assert phis_of(engine)[-1, 0] == pytest.approx(expected, rel=1e-15)


def test_a_path_that_does_not_move_pulls_nowhere(quadratics, engine_of, phis_of):
    tasks = quadratics(wobble=0.0)
    phis = phis_of(engine_of(tasks, "leap", inner={"alpha": 0.0}))
    np.testing.assert_array_equal(phis, phis[:1].repeat(len(phis), axis=0))


def test_forward_pass_at_the_end_only_when_the_loss_counts(quadratics, engine_of):
    seen = []

    class Watched(type(quadratics()["quadratic-1"])):
        def loss(self, module, index, *, held_out=False):
            seen.append(index)
            return super().loss(module, index, held_out=held_out)

    (name, task), *_ = quadratics(count=1).items()
    watched = {name: Watched(**vars(task))}
    engine_of(watched, {"name": "leap", "loss": True}).run(0, 8)
    assert seen == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]
    seen.clear()
    engine_of(watched, {"name": "leap", "loss": False}).run(0, 8)
    assert seen == list(range(8))
