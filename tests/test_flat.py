"""Flat vectors: the module really lives in them, weights keep their names, and update rules are torch.optim's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rayctsl.config import OptimizerConfig
from rayctsl.flat import FlatModule, build_optimizer, copy_state, load_backbone


class Net(nn.Module):
    """The head stands in the middle, and one parameter's name merely starts like it."""

    def __init__(self, channels: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.head = nn.Linear(channels, 2)
        self.header = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.header(self.conv(images).relu()))
        return self.head(features.mean((2, 3)))


BACKBONE = ["conv.weight", "conv.bias", "header.weight", "header.bias", "norm.weight", "norm.bias"]
SIZE = 3 * 4 * 9 + 4 + 4 * 4 * 9 + 4 + 4 + 4


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def images():
    return torch.randn(5, 3, 6, 6)


layouts = pytest.mark.parametrize("channels_last", [False, True])


@layouts
def test_backbone_first_head_last(channels_last):
    flat = FlatModule(Net(), "head", channels_last)
    assert flat.names == [*BACKBONE, "head.weight", "head.bias"]
    assert flat.size == len(flat.backbone) == len(flat.backbone_grad) == SIZE
    assert len(flat.head) == len(flat.head_grad) == 4 * 2 + 2
    assert len(flat.vector) == len(flat.grad) == SIZE + 10


@layouts
def test_the_module_computes_as_before(images, channels_last):
    net = Net()
    before = net(images)
    after = FlatModule(net, "head", channels_last).module(images)
    torch.testing.assert_close(after, before)


@layouts
def test_parameters_and_vector_are_one_memory(channels_last):
    net = Net()
    flat = FlatModule(net, "head", channels_last)
    for number, parameter in enumerate(flat.parameters):
        parameter.data.fill_(number)
    sizes = [parameter.numel() for parameter in flat.parameters]
    assert flat.vector.tolist() == [number for number, size in enumerate(sizes) for _ in range(size)]
    flat.backbone.fill_(7.0)
    flat.head.fill_(8.0)
    assert {name: set(p.flatten().tolist()) for name, p in net.named_parameters()} == {
        name: {8.0 if name.startswith("head.") else 7.0} for name in flat.names
    }


@layouts
def test_gradients_gather_in_place(images, channels_last):
    net, other = Net(), Net()
    other.load_state_dict(net.state_dict())
    flat = FlatModule(net, "head", channels_last)
    pointers = [parameter.grad.data_ptr() for parameter in flat.parameters]
    for _ in range(2):  # they add up, as ordinary .grad does
        flat.module(images).square().sum().backward()
        other(images).square().sum().backward()
    assert [parameter.grad.data_ptr() for parameter in flat.parameters] == pointers
    expected = dict(other.named_parameters())
    for name, gradient in flat.name_backbone(flat.backbone_grad).items():
        torch.testing.assert_close(gradient, expected[name].grad)
    head = torch.cat([other.head.weight.grad.flatten(), other.head.bias.grad])
    torch.testing.assert_close(flat.head_grad, head)
    flat.grad.zero_()
    assert not net.conv.weight.grad.any()


@layouts
def test_names_round_trip(channels_last):
    net = Net()
    originals = {name: value.clone() for name, value in net.state_dict().items()}
    flat = FlatModule(net, "head", channels_last)
    named = flat.name_backbone(flat.backbone)
    assert list(named) == BACKBONE
    for name, value in named.items():
        assert torch.equal(value, originals[name])
        assert value.is_contiguous()  # what safetensors wants
    assert torch.equal(flat.flatten_backbone(named), flat.backbone)
    named["conv.weight"].zero_()
    assert net.conv.weight.any(), "names hold copies"


def test_one_layout_reads_the_other(images):
    net = Net()
    plain, last = FlatModule(net, "head"), FlatModule(Net(), "head", channels_last=True)
    last.backbone.copy_(last.flatten_backbone(plain.name_backbone(plain.backbone)))
    last.head.copy_(plain.head)
    assert not torch.equal(last.backbone, plain.backbone)
    assert last.module.conv.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last.module(images), plain.module(images))


def test_other_weights_are_refused():
    flat = FlatModule(Net(), "head")
    named = flat.name_backbone(flat.backbone)
    with pytest.raises(ValueError, match=r"another model: 'conv.bias' is in one and not the other"):
        flat.flatten_backbone({name: value for name, value in named.items() if name != "conv.bias"})
    with pytest.raises(ValueError, match="another model: 'extra'"):
        flat.flatten_backbone({**named, "extra": torch.zeros(1)})
    wide = FlatModule(Net(8), "head")
    shapes = r"'conv.weight' has shape \(8, 3, 3, 3\), the model has \(4, 3, 3, 3\)"
    with pytest.raises(ValueError, match=shapes):
        flat.flatten_backbone(wide.name_backbone(wide.backbone))
    # The same number of numbers in another shape is another model too.
    with pytest.raises(ValueError, match=r"'conv.weight' has shape \(3, 4, 3, 3\)"):
        flat.flatten_backbone({**named, "conv.weight": named["conv.weight"].reshape(3, 4, 3, 3)})


def test_weights_without_norm_layers_leave_those_of_the_module(images):
    """Of a run in which every task had its own."""
    net, donor = Net(), Net()
    norm, head = net.norm.weight.detach().fill_(3.0).clone(), net.head.weight.detach().clone()
    phi = {name: value.detach() for name, value in donor.named_parameters() if name in BACKBONE}
    load_backbone(net, {name: value for name, value in phi.items() if not name.startswith("norm.")}, "head")
    assert torch.equal(net.conv.weight, donor.conv.weight)
    assert torch.equal(net.norm.weight, norm)
    load_backbone(net, phi, "head")
    assert torch.equal(net.norm.weight, donor.norm.weight)
    assert torch.equal(net.head.weight, head)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_head_names():
    with pytest.raises(ValueError, match="no parameters under the head name 'tail'"):
        FlatModule(Net(), "tail")
    with pytest.raises(ValueError, match="'hea'"):
        FlatModule(Net(), "hea")
    nothing = FlatModule(Net())
    assert len(nothing.head) == 0
    assert nothing.size == len(nothing.vector)


def test_frozen_backbone_gets_no_gradient(images):
    flat = FlatModule(Net(), "head")
    flat.freeze_backbone(True)
    flat.module(images).square().sum().backward()
    assert not flat.backbone_grad.any()
    assert flat.head_grad.any()
    flat.freeze_backbone(False)
    flat.module(images).square().sum().backward()
    assert flat.backbone_grad.any()


def test_a_module_that_comes_frozen_is_thawed(images):
    flat = FlatModule(Net().requires_grad_(False), "head")
    flat.freeze_backbone(False)
    flat.module(images).square().sum().backward()
    assert flat.backbone_grad.any()


def test_buffers_are_not_parameters(images):
    flat = FlatModule(Net(), "head")
    assert set(flat.buffers()) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    before = flat.vector.clone()
    flat.module(images)
    assert flat.buffers()["norm.num_batches_tracked"] == 1
    assert torch.equal(flat.vector, before)


RULES = [
    ({"optimizer": "sgd"}, lambda p: torch.optim.SGD(p, 0.1)),
    ({"optimizer": "sgd", "weight_decay": 0.3}, lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.3)),
    ({"optimizer": "momentum"}, lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    (
        {"optimizer": "momentum", "momentum": 0.5, "weight_decay": 0.3},
        lambda p: torch.optim.SGD(p, 0.1, 0.5, weight_decay=0.3),
    ),
    (
        {"optimizer": "nesterov", "weight_decay": 0.3},
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.3, nesterov=True),
    ),
    ({"optimizer": "nesterov", "momentum": 0.0}, lambda p: torch.optim.SGD(p, 0.1)),
    ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, 0.1)),
    (
        {"optimizer": "adam", "weight_decay": 0.3, "adam_betas": (0.8, 0.95), "adam_epsilon": 1e-3},
        lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.95), 1e-3, 0.3),
    ),
]


@pytest.mark.parametrize(
    ("settings", "reference"), RULES, ids=["-".join(map(str, settings.values())) for settings, _ in RULES]
)
def test_update_rules_are_those_of_torch(settings, reference):
    theta = torch.randn(20, dtype=torch.float64)
    parameter = nn.Parameter(theta.clone())
    optimizer, rule = reference([parameter]), build_optimizer(OptimizerConfig(**settings), theta)
    for _ in range(8):
        gradient = torch.randn(20, dtype=torch.float64)
        parameter.grad = gradient.clone()
        optimizer.step()
        theta.add_(rule.direction(theta, gradient), alpha=-0.1)
        torch.testing.assert_close(theta, parameter.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam"])
def test_a_rule_for_a_part_leaves_the_rest_alone(name):
    config, part = OptimizerConfig(optimizer=name, weight_decay=0.1), slice(12, None)
    theta, gradient = torch.randn(20), torch.randn(20)
    whole, alone = build_optimizer(config, theta), build_optimizer(config, theta[part])
    for _ in range(3):
        direction = whole.direction(theta[part], gradient[part], part)
        assert torch.equal(direction, alone.direction(theta[part], gradient[part]))
    for key, value in whole.state.items():
        if len(value) == 20:
            assert not value[:12].any()
            assert torch.equal(value[part], alone.state[key])


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_reset_rules_start_afresh(name):
    config = OptimizerConfig(optimizer=name)
    theta, gradient = torch.randn(20), torch.randn(20)
    used, fresh = build_optimizer(config, theta), build_optimizer(config, theta)
    used.direction(theta, gradient * 3)
    used.reset()
    assert torch.equal(used.direction(theta, gradient), fresh.direction(theta, gradient))


def test_directions_do_not_change_the_gradient():
    theta = torch.randn(20)
    for settings, _ in RULES:
        gradient = torch.randn(20)
        before, place = gradient.clone(), theta.clone()
        build_optimizer(OptimizerConfig(**settings), theta).direction(theta, gradient)
        assert torch.equal(gradient, before)
        assert torch.equal(theta, place)


def test_saved_state_must_fit():
    target = {"a": torch.zeros(2), "b": torch.zeros(3)}
    copy_state(target, {"a": torch.ones(2), "b": torch.ones(3)})
    assert target["a"].sum() + target["b"].sum() == 5
    with pytest.raises(ValueError, match="does not fit: 'b' is on one side only"):
        copy_state(target, {"a": torch.ones(2)})
    with pytest.raises(ValueError, match="does not fit: 'b' is"):
        copy_state(target, {"a": torch.ones(2), "b": torch.ones(1)})
