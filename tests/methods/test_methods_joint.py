"""Joint training is gradient descent on the mean loss; `single` is the same with one task, `scratch` is nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayctsl.methods import Step

STEPS, ALPHA, BETA = 8, 0.1, 0.05

RULES = {
    "sgd": lambda parameters, rate, decay: torch.optim.SGD(parameters, rate, weight_decay=decay),
    "momentum": lambda parameters, rate, decay: torch.optim.SGD(parameters, rate, 0.9, weight_decay=decay),
    "nesterov": lambda p, rate, decay: torch.optim.SGD(p, rate, 0.9, weight_decay=decay, nesterov=True),
    "adam": lambda parameters, rate, decay: torch.optim.Adam(parameters, rate, weight_decay=decay),
}


def train_jointly(tasks, rule, decay, steps=STEPS):
    """torch.optim on one shared backbone and a head for every task; returns the backbone after every step."""
    n = len(tasks[0].start) - tasks[0].head
    backbone = torch.tensor(tasks[0].start[:n], requires_grad=True)
    heads = [torch.tensor(task.start[n:], requires_grad=True) for task in tasks]
    optimizers = [RULES[rule]([backbone], BETA, decay), *(RULES[rule]([head], ALPHA, decay) for head in heads)]
    path = [backbone.detach().numpy().copy()]
    for index in range(steps):
        losses = [
            task.loss(lambda head=head: torch.cat([backbone, head]), index)
            for task, head in zip(tasks, heads, strict=True)
        ]
        (backbone.grad,) = torch.autograd.grad(torch.stack(losses).mean(), backbone, retain_graph=True)
        for loss, head in zip(losses, heads, strict=True):
            (head.grad,) = torch.autograd.grad(loss, head, retain_graph=True)
        for optimizer in optimizers:
            optimizer.step()
        path.append(backbone.detach().numpy().copy())
    return np.array(path)


@pytest.mark.parametrize("decay", [0.0, 0.2])
@pytest.mark.parametrize("rule", list(RULES))
def test_mtl_is_descent_on_the_mean_loss(quadratics, engine_of, phis_of, rule, decay):
    tasks = quadratics()
    inner = {"optimizer": rule, "alpha": ALPHA, "weight_decay": decay}
    # Trajectories mean nothing here: phi, heads and optimizers go on.
    engine = engine_of(tasks, {"name": "mtl", "beta": BETA}, inner_steps=4, trajectories=2, inner=inner)
    expected = train_jointly(list(tasks.values()), rule, decay)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-12)
    for learner in engine.group.active:
        assert torch.equal(learner.theta, engine.meta.phi)


def test_mtl_takes_another_outer_rule_when_told(quadratics, engine_of, phis_of):
    tasks = quadratics(head=0)
    outer = {"optimizer": "adam", "weight_decay": 0.0}
    engine = engine_of(tasks, {"name": "mtl", "beta": BETA}, outer=outer, inner={"optimizer": "sgd"})
    expected = train_jointly(list(tasks.values()), "adam", 0.0)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-12)


def test_mtl_one_step_by_hand(parabola, engine_of, phis_of):
    # Gradients at 0: -1 and 2, mean 1/2.
    tasks = {"left": parabola("left", 1.0, 1.0), "right": parabola("right", 2.0, -1.0)}
    engine = engine_of(tasks, {"name": "mtl", "beta": 0.5})
    # At -1/4: -5/4 and 3/2, mean 1/8.
    np.testing.assert_array_equal(phis_of(engine, 0, 2)[:, 0], [0, -1 / 4, -1 / 4 - 1 / 16])


def test_mtl_inner_steps_move_only_the_heads(quadratics, engine_of):
    tasks = quadratics()
    engine = engine_of(tasks, "mtl", inner={"optimizer": "momentum", "weight_decay": 0.2})
    engine.group.inner_step(engine.meta.phi, Step(m=0, k=1, K=4))
    for learner, task in zip(engine.group.active, tasks.values(), strict=True):
        assert torch.equal(learner.theta, engine.meta.phi)
        assert np.abs(learner.flat.head.numpy() - task.start[4:]).min() > 0.01


@pytest.mark.parametrize(("source", "trained"), [(None, "quadratic-1"), ("quadratic-2", "quadratic-2")])
def test_single_trains_on_one_source(quadratics, engine_of, phis_of, source, trained):
    tasks = quadratics()
    inner = {"optimizer": "nesterov", "alpha": ALPHA, "weight_decay": 0.2}
    engine = engine_of(tasks, {"name": "single", "beta": BETA, "source": source}, inner=inner)
    assert list(engine.group.learners) == [trained]
    expected = train_jointly([tasks[trained]], "nesterov", 0.2)
    np.testing.assert_allclose(phis_of(engine), expected, rtol=0, atol=1e-12)


def test_scratch_takes_no_step(quadratics, engine_of, phis_of):
    engine = engine_of(quadratics(), "scratch")
    assert engine.problem.config.total_steps == 0
    assert phis_of(engine).shape == (1, 4)
