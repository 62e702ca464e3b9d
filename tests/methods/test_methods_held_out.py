"""The methods with held-out batches: FOMAML, FOMAML++, FOMAML with shifts, ANIL and iMAML, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayctsl.methods import Step, build_method
from rayctsl.methods.imaml import conjugate_gradient

ALPHA, BETA, K, M = 0.1, 0.5, 5, 3


def simulate(tasks, meta_gradient, *, anil=False, every_step=False, shifts=False, proximal=0.0, steps=K):
    """phi after every trajectory (or step), where meta_gradient(task, path, m) has path = [z after k = 0, 1, ...]."""
    n = len(next(iter(tasks.values())).start) - next(iter(tasks.values())).head
    z = {name: task.start.copy() for name, task in tasks.items()}
    phi = next(iter(z.values()))[:n].copy()
    phis = [phi.copy()]
    for m in range(M):
        for name in tasks:
            z[name][:n] = phi
        paths = {name: [z[name].copy()] for name in tasks}
        for k in range(1, steps + 1):
            for name, task in tasks.items():
                gradient = task.gradient(z[name], m * steps + k - 1)
                gradient[:n] += proximal * (z[name][:n] - phi)
                if anil:
                    gradient[:n] = 0
                z[name] = z[name] - ALPHA * gradient
                paths[name].append(z[name].copy())
            if every_step or k == steps:
                mean = np.mean([meta_gradient(task, paths[name], m)[:n] for name, task in tasks.items()], axis=0)
                phi = phi - BETA * mean
                if shifts:
                    for name in tasks:
                        z[name][:n] -= BETA * mean
                phis.append(phi.copy())
    return np.array(phis)


def after_trajectories(phis, steps=K):
    """The rows of `phis_of` after whole trajectories; all others must repeat the row before."""
    inside = np.array([row for index, row in enumerate(phis) if index % steps])
    np.testing.assert_array_equal(inside, phis[:-1:steps].repeat(steps - 1, axis=0))
    return phis[::steps]


def last_held_out(task, path, m, steps=K):
    return task.gradient(path[-1], (m * steps) + len(path) - 2, held_out=True)


def test_fomaml_by_hand(parabola, engine_of, phis_of):
    # theta -> 3/4 theta + 1/4, twice: 7/16 from 0. The gradient there is 7/16 - 1 = -9/16, phi = 9/32.
    engine = engine_of({"one": parabola("one", 1.0, 1.0)}, "fomaml", inner_steps=2, inner={"alpha": 0.25})
    # From 9/32: 9/16 * 9/32 + 7/16 = 305/512; gradient -207/512.
    np.testing.assert_array_equal(phis_of(engine)[[0, 2, 4], 0], [0, 9 / 32, 9 / 32 + 207 / 1024])


def test_fomaml(quadratics, engine_of, phis_of):
    tasks = quadratics()
    engine = engine_of(tasks, "fomaml", inner_steps=K, trajectories=M)
    expected = simulate(tasks, last_held_out)
    np.testing.assert_allclose(after_trajectories(phis_of(engine)), expected, rtol=0, atol=1e-13)


def test_fomaml_shifting_shifts_with_factor_one(quadratics, engine_of, phis_of):
    tasks = quadratics()
    engine = engine_of(tasks, "fomaml_shifting", inner_steps=K, trajectories=M)
    expected = simulate(tasks, last_held_out, every_step=True, shifts=True)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-13)


def test_anil_moves_only_the_head_inside(quadratics, engine_of, phis_of):
    tasks = quadratics()
    settings = {"inner_steps": K, "trajectories": M, "inner": {"weight_decay": 0.0}}
    engine = engine_of(tasks, "anil", **settings)
    expected = simulate(tasks, last_held_out, anil=True)
    np.testing.assert_allclose(after_trajectories(phis_of(engine)), expected, rtol=0, atol=1e-13)
    engine = engine_of(tasks, "anil", inner_steps=K, inner={"optimizer": "adam", "weight_decay": 0.1})
    engine.run(0, K - 1)
    for learner, task in zip(engine.group.active, tasks.values(), strict=True):
        np.testing.assert_array_equal(learner.theta.numpy(), task.start[:4])
        assert np.abs(learner.flat.head.numpy() - task.start[4:]).min() > 0.01
        assert not learner.theta_grad.any(), "the backward pass stops at the head"


def weights(method, steps, m):
    return [method.weight(Step(m=m, k=k, K=steps)) for k in range(1, steps + 1)]


def test_multi_step_weights(quadratics, engine_of):
    def build(**options):
        config = engine_of(quadratics(), {"name": "fomaml_pp", **options}).problem.config
        return build_method(config.method)

    # At k = 2, 4 and, because a trajectory's end always counts, 5.
    assert weights(build(every=2), 5, m=7) == pytest.approx([0, 1 / 3, 0, 1 / 3, 1 / 3])
    assert weights(build(every=10), 4, m=0) == [0, 0, 0, 1]
    annealed = build(every=2, anneal_trajectories=4)
    assert weights(annealed, 4, m=0) == pytest.approx([0, 1 / 2, 0, 1 / 2])
    assert weights(annealed, 4, m=1) == pytest.approx([0, 3 / 8, 0, 5 / 8])
    assert weights(annealed, 4, m=4) == weights(annealed, 4, m=9) == [0, 0, 0, 1]
    for m in range(6):
        assert sum(weights(annealed, 7, m)) == pytest.approx(1)


@pytest.mark.parametrize("anneal", [0, 2])
def test_fomaml_pp(quadratics, engine_of, phis_of, anneal):
    tasks = quadratics()
    method = {"name": "fomaml_pp", "every": 2, "anneal_trajectories": anneal}
    engine = engine_of(tasks, method, inner_steps=K, trajectories=M)

    def multi_step(task, path, m):
        share = [1.0, 0.5, 0.0][m] if anneal else 1.0  # of the three equal weights
        w = {2: share / 3, 4: share / 3, 5: share / 3 + 1 - share}
        return sum(w[k] * task.gradient(path[k], m * K + k - 1, held_out=True) for k in w)

    expected = simulate(tasks, multi_step)
    np.testing.assert_allclose(after_trajectories(phis_of(engine)), expected, rtol=0, atol=1e-13)
    if anneal:  # the third trajectory needs one held-out gradient a task, the others three
        assert engine.group.counts().tolist() == [3 * K * M, 3 * (3 + 3 + 1), 0]


@pytest.mark.parametrize("proximal", [True, False])
def test_imaml_against_a_dense_inverse(quadratics, engine_of, phis_of, proximal):
    tasks = quadratics()
    method = {"name": "imaml", "regularization": 2.0, "cg_damping": 0.3, "cg_steps": 4, "proximal": proximal}
    engine = engine_of(tasks, method, inner_steps=K, trajectories=M)

    def implicit(task, path, m):
        hessian = task.matrices[0][:4, :4]
        return np.linalg.inv(np.eye(4) + (hessian + 0.3 * np.eye(4)) / 2.0) @ last_held_out(task, path, m)[:4]

    expected = simulate(tasks, implicit, proximal=2.0 if proximal else 0.0)
    np.testing.assert_allclose(after_trajectories(phis_of(engine)), expected, rtol=0, atol=1e-11)


def test_imaml_with_one_conjugate_gradient_step(quadratics, engine_of, phis_of):
    tasks = quadratics()
    engine = engine_of(tasks, {"name": "imaml", "cg_steps": 1, "cg_damping": 0.0}, inner_steps=K, trajectories=M)

    def one_step(task, path, m):
        g = last_held_out(task, path, m)[:4]
        return g * (g @ g) / (g @ (g + task.matrices[0][:4, :4] @ g))

    expected = simulate(tasks, one_step, proximal=1.0)
    np.testing.assert_allclose(after_trajectories(phis_of(engine)), expected, rtol=0, atol=1e-12)


def test_conjugate_gradients():
    random = np.random.default_rng(3)
    root = random.normal(size=(6, 6))
    matrix, target = torch.from_numpy(root @ root.T + np.eye(6)), torch.from_numpy(random.normal(size=6))
    exact = torch.linalg.solve(matrix, target)

    def error(steps):  # in the norm that conjugate gradients minimise
        difference = conjugate_gradient(lambda v: matrix @ v, target, steps) - exact
        return (difference @ matrix @ difference).item()

    errors = [error(steps) for steps in range(1, 7)]
    assert errors == sorted(errors, reverse=True)
    assert errors[4] > 1e-9 > 1e-20 > errors[5]  # six dimensions, six steps
    assert conjugate_gradient(lambda v: matrix @ v, torch.zeros_like(target), 5).tolist() == [0.0] * 6


def test_conjugate_gradients_without_positive_curvature():
    target = torch.tensor([1.0, 2.0], dtype=torch.float64)
    # Nothing to divide by at once: the plain gradient, so that the task still pulls.
    assert conjugate_gradient(lambda v: -v, target, 5).tolist() == [1.0, 2.0]
    # Curvature 4 - 1 = 3 along the first direction, negative along the next: the first step's answer, 5 / 3 target.
    saddle = torch.diag(torch.tensor([-1.0, 1.0], dtype=torch.float64))
    found = conjugate_gradient(lambda v: saddle @ v, target, 5)
    np.testing.assert_allclose(found.numpy(), [5 / 3, 10 / 3], rtol=1e-15)
