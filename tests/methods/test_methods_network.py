"""The loop on a small real network with batch norm: reset policies, resuming, Hessian products."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from rayctsl.config import METHOD_CONFIGS, ModelConfig
from rayctsl.flat import FlatModule
from rayctsl.learning.engine import LocalEngine
from rayctsl.models import build_model, find_head

ALPHA, K = 0.05, 3
KINDS = {"optimizer": "optimizer.momentum", "head": "head", "norm_stats": "buffer.stem.1.running_mean"}


class Pictures:
    """A few random pictures in memory; batches walk through them, held-out ones through pictures of their own."""

    def __init__(self, name: str, num_classes: int, activation: str = "relu"):
        self.name, self.num_classes, self.activation = name, num_classes, activation
        generator = torch.Generator().manual_seed(num_classes)
        self.images = torch.randn(2, 12, 3, 8, 8, generator=generator)
        self.labels = torch.randint(num_classes, (2, 12), generator=generator)

    def build_module(self):
        return build_model(ModelConfig(name="resnet8", width=4, activation=self.activation), self.num_classes, seed=0)

    def head_name(self, module):
        return find_head(module)

    def loss(self, module, index, *, held_out=False):
        part, places = int(held_out), [(index * 4 + i) % 12 for i in range(6)]
        return functional.cross_entropy(module(self.images[part, places]), self.labels[part, places])


@pytest.fixture
def pictures():
    return {"three": Pictures("three", 3), "five": Pictures("five", 5)}


def build(engine_of, tasks, method, **settings):
    inner = {"optimizer": "momentum", "alpha": ALPHA, "weight_decay": 5e-4}
    return engine_of(tasks, method, **{"inner_steps": K, "inner": inner, **settings})


def test_heads_are_not_shared(engine_of, pictures):
    engine = build(engine_of, pictures, "shifting")
    three, five = engine.group.learners.values()
    assert len(five.flat.head) - len(three.flat.head) == 2 * 16 + 2
    assert torch.equal(three.theta, five.theta)
    assert engine.meta.phi.shape == three.theta.shape
    names = engine.name_phi(engine.meta.phi)
    assert not any(name.startswith(three.task.head_name(three.module)) for name in names)
    assert not any("running" in name for name in names)


def first_step_by_hand(task, phi, head, velocity, stats):
    """One step of a fresh module from the given state; returns loss, flat parameters and batch-norm statistics."""
    module = task.build_module().train()
    flat = FlatModule(module, task.head_name(module))
    flat.backbone.copy_(phi)
    flat.head.copy_(head)
    for name, value in flat.buffers().items():
        value.copy_(stats[f"buffer.{name}"])
    loss = task.loss(module, K)
    loss.backward()
    flat.vector.sub_(ALPHA * (0.9 * velocity + flat.grad + 5e-4 * flat.vector))
    return loss.item(), flat.vector, flat.buffers()


@pytest.mark.parametrize("policy", ["keep", "reset"])
@pytest.mark.parametrize("what", list(KINDS))
def test_reset_policies(engine_of, pictures, what, policy):
    engine = build(engine_of, pictures, "reptile", reset={what: policy})
    first = engine.capture(0).result().tasks
    engine.run(0, K)
    ended = engine.capture(K).result()
    losses = engine.run(K, K + 1).losses[0]
    for name, expected_loss in zip(pictures, losses, strict=True):
        for key in KINDS.values():  # or nothing would be tested
            assert (first[name][key] - ended.tasks[name][key]).abs().max() > 1e-3
        source = {kind: (first if policy == "reset" and kind == what else ended.tasks)[name] for kind in KINDS}
        head, velocity = source["head"]["head"], source["optimizer"]["optimizer.momentum"]
        loss, vector, buffers = first_step_by_hand(
            pictures[name], ended.meta["phi"], head, velocity, source["norm_stats"]
        )
        flat = engine.group.learners[name].flat
        assert expected_loss == pytest.approx(loss, rel=1e-6)
        torch.testing.assert_close(flat.vector, vector, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(flat.buffers(), buffers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, kind in METHOD_CONFIGS.items() if kind.trains])
def test_a_resumed_network_goes_on_bit_for_bit(engine_of, pictures, name):
    whole = build(engine_of, pictures, {"name": name, "beta": 0.1})
    whole.run(0, K + 1)
    resumed = LocalEngine(whole.problem)
    resumed.start(whole.capture(K + 1).result())
    whole.run(K + 1, 2 * K)
    resumed.run(K + 1, 2 * K)
    one, other = whole.capture(2 * K).result(), resumed.capture(2 * K).result()
    assert torch.equal(one.meta["phi"], other.meta["phi"])
    assert one.meta["phi"].isfinite().all()
    for task in one.tasks:
        assert all(torch.equal(value, other.tasks[task][key]) for key, value in one.tasks[task].items())


@pytest.mark.parametrize("channels_last", [False, True])
def test_hessian_products_of_a_network(engine_of, channels_last):
    smooth = {"smooth": Pictures("smooth", 3, "softplus")}  # a difference across a kink of ReLU says nothing
    learner = build(engine_of, smooth, "imaml").group.learners["smooth"]
    learner.module.double()
    learner.task.images = learner.task.images.double()
    learner.flat = flat = FlatModule(learner.module, find_head(learner.module), channels_last)
    learner.theta, learner.theta_grad = flat.backbone, flat.backbone_grad
    along = torch.randn(flat.size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    product = learner.hessian(0)(along)
    width, gradients = 1e-5, []
    for sign in (1, -1):
        flat.backbone.add_(along, alpha=sign * width)
        learner.compute_gradient(0)
        gradients.append(flat.backbone_grad.clone())
        flat.backbone.add_(along, alpha=-sign * width)
    numeric = (gradients[0] - gradients[1]) / (2 * width)
    assert (product - numeric).norm() / numeric.norm() < 1e-5


def test_hessian_of_parameters_without_curvature(engine_of):
    class Slope(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bowl = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
            self.slope = torch.nn.Parameter(torch.tensor([3.0]))
            self.idle = torch.nn.Parameter(torch.tensor([4.0]))

    class Task:
        name = "slope"

        def build_module(self):
            return Slope()

        def head_name(self, module):
            return None

        def loss(self, module, index, *, held_out=False):
            return (module.bowl**3).sum() + module.slope.sum()

    learner = engine_of({"slope": Task()}, "imaml").group.learners["slope"]
    assert learner.hessian(0)(torch.ones(4)).tolist() == [6.0, 12.0, 0.0, 0.0]
