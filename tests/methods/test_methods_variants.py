"""What goes past the paper, each against its closed form: pull, the average of phi, schedules of alpha, own norms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from rayctsl.config import build_config
from rayctsl.flat import FlatModule, load_backbone
from rayctsl.learning.meta_learner import kept_phi
from rayctsl.learning.schedule import alpha_at


def test_pull_by_hand(parabola, engine_of, phis_of):
    # theta 1/4, delta 1/8: phi 1/8, theta 3/8, halfway back 1/4. Then theta 7/16, delta (7/16 - 1/8) / 2 = 5/32.
    settings = {"inner_steps": 2, "trajectories": 1, "inner": {"alpha": 0.25}}
    engine = engine_of({"one": parabola("one", 1.0, 1.0)}, {"name": "shifting", "beta": 0.5, "pull": 0.5}, **settings)
    np.testing.assert_array_equal(phis_of(engine)[:, 0], [0, 1 / 8, 9 / 32])


def test_the_whole_pull_is_multi_task_learning(quadratics, engine_of, phis_of):
    pulled = phis_of(engine_of(quadratics(), {"name": "shifting", "beta": 1.0, "pull": 1.0}))
    joint = phis_of(engine_of(quadratics(), {"name": "mtl", "beta": 0.1}))
    np.testing.assert_allclose(pulled, joint, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", ["shifting", "reptile", "mtl"])
def test_average_of_phi(quadratics, engine_of, phis_of, method):
    plain = phis_of(engine_of(quadratics(), method))
    engine = engine_of(quadratics(), {"name": method, "average": 0.75})
    np.testing.assert_array_equal(phis_of(engine), plain)  # it moves nothing
    expected = plain[0]
    moved = [step for step in range(1, len(plain)) if (plain[step] != plain[step - 1]).any()]
    for step in moved:
        expected = 0.75 * expected + 0.25 * plain[step]
    np.testing.assert_allclose(kept_phi(engine.meta.state()), expected, rtol=1e-12)


def test_average_survives_a_snapshot(quadratics, engine_of):
    settings = {"name": "shifting", "average": 0.9}
    whole, first, second = (engine_of(quadratics(), settings) for _ in range(3))
    whole.run(0, 8)
    first.run(0, 3)
    second.start(first.capture(3).result())
    second.run(3, 8)
    assert torch.equal(kept_phi(second.meta.state()), kept_phi(whole.meta.state()))
    assert not torch.equal(kept_phi(whole.meta.state()), whole.meta.phi)


@pytest.mark.parametrize(
    ("centres", "disagreement", "factor"),
    [((1.0, 3.0), 5 / 4, 1.0), ((1.0, -0.5), 10.0, 5.0), ((2.0, 2.0), 1.0, 1.0)],
)
@pytest.mark.parametrize("adaptive", [False, True])
def test_disagreement_and_adaptive_beta_by_hand(parabola, engine_of, phis_of, centres, disagreement, factor, adaptive):
    # With alpha = 1/4 and curvature 1 the tasks move by a quarter of the way to their centres: d = centre / 4.
    tasks = {f"task {number}": parabola(f"task {number}", 1.0, centre) for number, centre in enumerate(centres)}
    settings = {"inner_steps": 1, "trajectories": 1, "inner": {"alpha": 0.25}}
    engine = engine_of(tasks, {"name": "shifting", "beta": 0.5, "adaptive_beta": adaptive}, **settings)
    end = phis_of(engine)[-1, 0]
    assert engine.meta.disagreement.item() == pytest.approx(disagreement, rel=1e-7)
    assert end == pytest.approx(0.5 * np.mean(centres) / 4 * (factor if adaptive else 1.0), rel=1e-7)


def test_disagreement_is_logged_whatever_the_method(quadratics, engine_of):
    for method in ("reptile", "mtl"):
        assert np.nanmin(engine_of(quadratics(), method).run(0, 8).disagreements) >= 1


def test_tasks_that_do_not_move_have_no_disagreement(quadratics, engine_of, phis_of):
    phis = phis_of(engine_of(quadratics(), {"name": "shifting", "adaptive_beta": True}, inner={"alpha": 0.0}))
    np.testing.assert_array_equal(phis, phis[:1].repeat(len(phis), axis=0))


def test_rates_of_a_schedule():
    def rates(within, over):
        raw = {"inner_steps": 4, "trajectories": 2, "inner": {"alpha": 0.8}}
        config = build_config({**raw, "schedule": {"within": within, "over": over}})
        return [alpha_at(config, index) for index in range(8)]

    assert rates("constant", "constant") == [0.8] * 8
    assert rates("linear", "constant") == pytest.approx([0.8, 0.6, 0.4, 0.2] * 2)
    assert rates("constant", "linear") == pytest.approx([0.8] * 4 + [0.4] * 4)
    cosine = [0.4 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert rates("cosine", "cosine") == pytest.approx([*cosine, *(rate / 2 for rate in cosine)])


def test_a_schedule_reaches_the_inner_steps(parabola, engine_of, phis_of):
    # The distance to the centre shrinks by 1 - alpha_k: (1 - 1/2) (1 - 1/4) = 3/8 of it is left.
    settings = {"inner_steps": 2, "trajectories": 1, "inner": {"alpha": 0.5}, "schedule": {"within": "linear"}}
    engine = engine_of({"one": parabola("one", 1.0, 1.0)}, {"name": "reptile", "beta": 1.0}, **settings)
    assert phis_of(engine)[-1, 0] == 1 - 3 / 8


class Normed:
    """A task with a norm layer: one loss, whatever the batch."""

    name = "normed"

    def build_module(self):
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
        for place, parameter in enumerate(module.parameters()):
            parameter.data.copy_(torch.linspace(0.5, 1.5, parameter.numel()).reshape(parameter.shape) + place)
        return module

    def head_name(self, module):
        return "2"

    def loss(self, module, index, *, held_out=False):
        return module(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], dtype=torch.float64)).square().mean()


def test_own_norms_are_no_part_of_phi(engine_of):
    engine = engine_of({"normed": Normed()}, "shifting", own_norm=True, inner={"alpha": 1e-4})
    first = Normed().build_module()
    engine.run(0, 5)  # into the second trajectory
    phi = engine.name_phi(engine.meta.phi)
    assert set(phi) == {"0.weight", "0.bias"}
    learner = engine.first
    assert not torch.equal(learner.module[1].weight, first[1].weight)  # trained, and kept when theta went back
    target = Normed().build_module()
    load_backbone(target, phi, "2")
    assert torch.equal(target[0].weight, phi["0.weight"])
    assert torch.equal(target[1].weight, first[1].weight)


def test_phi_of_another_model_is_still_refused():
    module = Normed().build_module()
    phi = FlatModule(Normed().build_module(), "2").name_backbone(torch.zeros(6 + 3 + 6).double())
    with pytest.raises(ValueError, match=r"'1.bias' is in one and not the other"):
        load_backbone(module, {name: value for name, value in phi.items() if name != "1.bias"}, "2")
