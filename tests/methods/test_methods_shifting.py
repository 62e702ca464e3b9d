"""Shifting, Reptile, the ablations and the accurate variant against sums on paper and simulations in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayctsl.methods import Step, build_method

ALPHA, BETA, K, M = 0.1, 0.5, 4, 3


def simulate(tasks, method, *, every=1, delay=0, momentum=0.0, steps=K, trajectories=M):
    """phi after every inner step, [steps + 1, n], for the methods whose contribution is theta - phi.

    z is (theta, head) of every task; momentum, like the head, is kept from one trajectory to the next.
    """
    names = list(tasks)
    n = len(tasks[names[0]].start) - tasks[names[0]].head
    z = {name: tasks[name].start.copy() for name in names}
    velocity = {name: np.zeros_like(z[name]) for name in names}
    phi = z[names[0]][:n].copy()
    phis, waiting = [phi.copy()], None

    def move(name, index):
        velocity[name] = momentum * velocity[name] + tasks[name].gradient(z[name], index)
        z[name] = z[name] - ALPHA * velocity[name]

    def shift_all(mean):
        nonlocal phi
        delta = BETA * mean
        phi = phi + delta
        if method == "shifting":
            for name in names:
                z[name][:n] += delta

    for m in range(trajectories):
        began = {name: (z[name][n:].copy(), velocity[name].copy()) for name in names}
        for name in names:
            z[name][:n] = phi
        for k in range(1, steps + 1):
            for name in names:
                if method == "accurate":
                    z[name] = np.concatenate([phi, began[name][0]])
                    velocity[name] = began[name][1].copy()
                    for j in range(k):
                        move(name, m * steps + j)
                else:
                    move(name, m * steps + k - 1)
            updates = k == steps if method == "reptile" else k % every == 0 or k == steps
            mean = np.mean([z[name][:n] - phi for name in names], axis=0) if updates else None
            if waiting is not None:
                shift_all(waiting)
                waiting = None
            if updates:
                if delay and k < steps:
                    waiting = mean
                else:
                    shift_all(mean)
            phis.append(phi.copy())
    return np.array(phis)


def test_two_meta_updates_of_shifting_by_hand(parabola, engine_of, phis_of):
    # alpha = 1/4 makes the inner steps theta -> 3/4 theta + 1/4 and theta -> 1/2 theta - 1/2; all sums are exact.
    tasks = {"left": parabola("left", 1.0, 1.0), "right": parabola("right", 2.0, -1.0)}
    engine = engine_of(tasks, "shifting", inner_steps=2, trajectories=1, inner={"alpha": 0.25})
    # k = 1: theta = 1/4, -1/2;             mean(theta - phi) = -1/8;     phi = -1/16
    # k = 2: theta = 3/16, -9/16 shifted;   theta = 25/64, -25/32;        mean = -17/128;  phi = -33/256
    np.testing.assert_array_equal(phis_of(engine)[:, 0], [0, -1 / 16, -33 / 256])
    # The last shift moved both trajectories too.
    thetas = [learner.theta.item() for learner in engine.group.active]
    assert thetas == [25 / 64 - 17 / 256, -25 / 32 - 17 / 256]


def test_two_meta_updates_of_reptile_by_hand(parabola, engine_of, phis_of):
    tasks = {"left": parabola("left", 1.0, 1.0), "right": parabola("right", 2.0, -1.0)}
    engine = engine_of(tasks, "reptile", inner_steps=2, trajectories=2, inner={"alpha": 0.25})
    # Two steps are theta -> 9/16 theta + 7/16 and theta -> 1/4 theta - 3/4.
    # From 0: 7/16 and -3/4, mean -5/32, phi = -5/64. From -5/64: 403/1024 and -197/256, mean - phi = -225/2048.
    np.testing.assert_array_equal(phis_of(engine)[:, 0], [0, 0, -5 / 64, -5 / 64, -5 / 64 - 225 / 4096])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("method", ["shifting", "no_shifting", "accurate", "reptile"])
def test_whole_runs_against_numpy(quadratics, engine_of, phis_of, method, momentum):
    tasks = quadratics()
    inner = {"optimizer": "momentum", "momentum": momentum, "alpha": ALPHA}
    engine = engine_of(tasks, method, inner_steps=K, trajectories=M, inner=inner)
    expected = simulate(tasks, method, momentum=momentum)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-13)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("delay", [0, 1])
def test_seldom_and_late_shifts_against_numpy(quadratics, engine_of, phis_of, every, delay):
    tasks = quadratics()
    method = {"name": "shifting", "aggregate_every": every, "shift_delay": delay}
    engine = engine_of(tasks, method, inner_steps=7, trajectories=M)
    expected = simulate(tasks, "shifting", every=every, delay=delay, steps=7)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-13)
    assert engine.meta.pending is None  # a trajectory ends with everything applied


def test_late_shift_is_one_step_late(quadratics, engine_of, phis_of):
    phis = phis_of(engine_of(quadratics(), {"name": "shifting", "shift_delay": 1, "aggregate_every": 2}, inner_steps=6))
    moved = np.abs(np.diff(phis, axis=0)).max(axis=1) > 0
    assert moved[:6].tolist() == [False, False, True, False, True, True]


def test_seldom_updates_at_the_last_step_only_are_reptile(quadratics, engine_of, phis_of):
    tasks = quadratics()
    seldom = engine_of(tasks, {"name": "shifting", "aggregate_every": K}, inner_steps=K)
    # With the head and SGD without momentum, nothing but theta = phi is left of a trajectory's last shift.
    np.testing.assert_array_equal(phis_of(seldom), phis_of(engine_of(tasks, "reptile", inner_steps=K)))


def test_shifting_with_delta_zero_is_plain_training(quadratics, engine_of):
    tasks = quadratics()
    settings = {"inner_steps": 9, "trajectories": 1, "inner": {"optimizer": "momentum", "alpha": ALPHA}}
    engine = engine_of(tasks, {"name": "shifting", "beta": 0.0}, **settings)
    engine.run(0, 9)
    for name, task in tasks.items():
        z, velocity = task.start.copy(), np.zeros_like(task.start)
        for index in range(9):
            velocity = 0.9 * velocity + task.gradient(z, index)
            z = z - ALPHA * velocity
        trained = engine.group.learners[name].flat.vector.numpy()
        np.testing.assert_allclose(trained, z, rtol=0, atol=1e-13)


def test_shifts_leave_theta_minus_phi_alone(quadratics, engine_of):
    engine = engine_of(quadratics(), "shifting")
    step = Step(m=0, k=1, K=4)
    engine.group.begin_trajectory(engine.meta.phi)
    engine.group.inner_step(engine.meta.phi, step)
    before = [learner.theta - engine.meta.phi for learner in engine.group.active]
    delta = engine.meta.update(engine.group.contribution(engine.meta.phi, step))
    engine.group.shift(engine.meta.phi, delta, step)
    assert delta.norm() > 0.01
    for learner, distance in zip(engine.group.active, before, strict=True):
        torch.testing.assert_close(learner.theta - engine.meta.phi, distance, rtol=0, atol=1e-15)


def random_shifts(quadratics, engine_of, seed, steps=3):
    """How far every theta was moved beyond its inner step, [steps, tasks, n], and the deltas [steps, n]."""
    engine = engine_of(quadratics(size=50), "random_shifting", seed=seed, inner_steps=steps)
    shifts, deltas = [], []
    for k in range(1, steps + 1):
        step, phi = Step(m=0, k=k, K=steps), engine.meta.phi
        if k == 1:
            engine.group.begin_trajectory(phi)
        engine.group.inner_step(phi, step)
        before = [learner.theta.clone() for learner in engine.group.active]
        delta = engine.meta.update(engine.group.contribution(phi, step))
        engine.group.shift(phi, delta, step)
        after = [learner.theta for learner in engine.group.active]
        shifts.append(np.stack([(a - b).numpy() for a, b in zip(after, before, strict=True)]))
        deltas.append(delta.numpy())
    return np.array(shifts), np.array(deltas)


@pytest.mark.parametrize("seed", [0, 2**63])
def test_random_shifts(quadratics, engine_of, seed):
    shifts, deltas = random_shifts(quadratics, engine_of, seed)
    lengths = np.linalg.norm(deltas, axis=1)
    np.testing.assert_allclose(np.linalg.norm(shifts, axis=2), np.tile(lengths[:, None], 3), rtol=1e-12)
    np.testing.assert_allclose(shifts, shifts[:, :1].repeat(3, axis=1), rtol=0, atol=1e-14)  # one for all tasks
    directions = shifts[:, 0] / lengths[:, None]
    away = np.abs(directions @ directions.T - np.eye(3)).max()
    assert away < 0.5, "every step has a direction of its own"
    assert np.abs((directions * deltas).sum(1) / lengths).max() < 0.5, "which is not delta's"
    again, _ = random_shifts(quadratics, engine_of, seed)
    np.testing.assert_array_equal(again, shifts)
    other, _ = random_shifts(quadratics, engine_of, seed + 1)
    assert np.abs(other - shifts).max() > 0.01


def test_random_shifts_of_another_trajectory_go_another_way(quadratics, engine_of):
    engine = engine_of(quadratics(size=50, count=1), "random_shifting")
    (learner,), delta, ways = engine.group.active, torch.ones(50, dtype=torch.float64) / 50**0.5, []
    for m in range(2):
        learner.theta.zero_()
        engine.method.shift(learner, engine.meta.phi, delta, Step(m=m, k=1, K=4))
        ways.append(learner.theta.clone())
    assert ways[0] @ ways[0] == pytest.approx(1.0)
    assert abs(ways[0] @ ways[1]) < 0.5


def test_random_shifting_moves_phi_by_the_mean_distance(quadratics, engine_of):
    engine = engine_of(quadratics(), "random_shifting")
    engine.run(0, 2)
    step = Step(m=0, k=3, K=4)
    engine.group.inner_step(engine.meta.phi, step)
    distances = torch.stack([learner.theta - engine.meta.phi for learner in engine.group.active])
    delta = engine.meta.update(engine.group.contribution(engine.meta.phi, step))
    torch.testing.assert_close(delta, BETA * distances.mean(0), rtol=0, atol=1e-15)


def test_step_numbers():
    assert Step(m=2, k=1, K=100).index == 200
    assert Step.at(200, 100) == Step(m=2, k=1, K=100)
    assert Step.at(199, 100) == Step(m=1, k=100, K=100)


def test_updates_of_shifting_include_the_last_step(engine_of, quadratics):
    method = build_method(engine_of(quadratics(), {"name": "shifting", "aggregate_every": 3}).problem.config.method)
    assert [k for k in range(1, 9) if method.updates_at(Step(m=0, k=k, K=8))] == [3, 6, 8]
