"""Building by name and seed, and heads of any module."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import ModelConfig
from rayctsl.models import MODELS, build_model, find_head, with_head
from rayctsl.models.own import UserModel
from tests.models.counting import num_parameters


def split(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The state of the backbone and of the head."""
    head = find_head(model) + "."
    state = model.state_dict()
    return (
        {name: tensor for name, tensor in state.items() if not name.startswith(head)},
        {name: tensor for name, tensor in state.items() if name.startswith(head)},
    )


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "resnet18"])
def test_backbone_depends_on_the_seed_and_not_on_the_number_of_classes(name: str):
    few, many = (split(build_model(ModelConfig(name=name), num_classes, seed=7)) for num_classes in (2, 100))
    again, other = (split(build_model(ModelConfig(name=name), 2, seed=seed)) for seed in (7, 8))
    assert same(few[0], many[0])
    assert same(few[0], again[0])
    assert same(few[1], again[1])
    assert not same(few[0], other[0])
    assert not same(few[1], other[1])
    assert many[1][f"{find_head(build_model(ModelConfig(name=name), 2))}.weight"].shape[0] == 100


def test_one_seed_gives_unrelated_numbers_to_other_names_and_widths():
    stems = [
        build_model(ModelConfig(name=name, width=width), 2, seed=0).state_dict()["stem.0.weight"].flatten()[:50]
        for name, width in (("resnet8", 16), ("resnet20", 16), ("resnet8", 8))
    ]
    # Fan-out scales with the width, so compare signs: equal draws would agree everywhere.
    assert all(0.2 < (stems[0].sign() == stem.sign()).float().mean() < 0.8 for stem in stems[1:])


def test_a_seed_leaves_the_global_random_state_alone_and_ignores_it():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_model(ModelConfig(name="resnet8"), 5, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(first.state_dict(), build_model(ModelConfig(name="resnet8"), 5, seed=0).state_dict())


def test_without_a_seed_the_global_random_state_decides():
    torch.manual_seed(1)
    first, second = build_model(ModelConfig(name="resnet8"), 5), build_model(ModelConfig(name="resnet8"), 5)
    torch.manual_seed(1)
    assert same(first.state_dict(), build_model(ModelConfig(name="resnet8"), 5).state_dict())
    assert not same(first.state_dict(), second.state_dict())


def test_a_numpy_seed_is_the_same_seed():
    seeds = (3, np.int64(3))
    left, right = (build_model(ModelConfig(name="resnet8", width=4), 5, seed=seed).state_dict() for seed in seeds)  # type: ignore[arg-type]
    assert same(left, right)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet_20"}, r"model 'resnet_20' is unknown; did you mean 'resnet20'\?"),
        ({"name": "vgg"}, "model 'vgg' is unknown; known: resnet18, resnet20"),
        ({"num_classes": 0}, "num_classes must be at least 1, not 0"),
        ({"weights": "imagenet"}, "model 'resnet8' has no ImageNet weights"),
        ({"name": "resnet18", "width": 32}, "fixed width 64, it cannot be built with width 32"),
    ],
)
def test_bad_input_is_refused_with_one_sentence(arguments: dict, message: str):
    num_classes = arguments.pop("num_classes", 5)
    with pytest.raises(ValueError, match=message) as caught:
        build_model(ModelConfig(**{"name": "resnet8", **arguments}), num_classes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_models_name_their_head_and_survive_a_pickle(name: str):
    model = build_model(ModelConfig(name=name), 3, seed=0).eval()
    assert model.head_name == ("fc" if name in ("resnet18", "resnet34") else "head")
    assert isinstance(model.get_submodule(find_head(model)), nn.Linear)
    images = torch.zeros(1, 1, 32, 32)
    assert torch.equal(pickle.loads(pickle.dumps(model))(images), model(images))


class Features(nn.Module):
    """A user's module: a backbone under `body`, and heads under the names asked for."""

    def __init__(self, **heads: nn.Module) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4)
        for name, head in heads.items():
            self.add_module(name, head)


@pytest.mark.parametrize("name", ["head", "fc", "classifier"])
def test_the_usual_head_names_are_found(name: str):
    assert find_head(Features(**{name: nn.Linear(4, 2)}), None) == name


def test_an_explicit_name_wins_over_the_attribute_and_that_over_the_usual_names():
    module = Features(head=nn.Linear(4, 2), top=nn.Linear(4, 2), out=nn.Linear(4, 2))
    assert find_head(module, None) == "head"
    module.head_name = "top"  # type: ignore[assignment]
    assert find_head(module, None) == "top"
    assert find_head(module, "out") == "out"


@pytest.mark.parametrize(
    ("module", "head_name", "message"),
    [
        (Features(), None, "Features has none of 'head', 'fc', 'classifier'; name its last layer"),
        (Features(fc=nn.Identity(), head=nn.Identity()), None, "Features has 'fc' and 'head'; name its last layer"),
        (Features(top=nn.Linear(4, 2)), "tops", r"head 'tops' is unknown; did you mean 'top'\?"),
    ],
)
def test_no_clear_head_is_refused(module: nn.Module, head_name: str | None, message: str):
    with pytest.raises(ValueError, match=message):
        find_head(module, head_name)


def test_with_head_replaces_a_linear_head_in_place():
    module = Features(top=nn.Linear(4, 2, bias=False, dtype=torch.float64))
    body = module.body.weight.clone()
    assert with_head(module, 9, "top") is module
    head = module.get_submodule("top")
    assert isinstance(head, nn.Linear)
    assert head.weight.shape == (9, 4)
    assert head.bias is None
    assert head.weight.dtype == torch.float64
    assert torch.equal(module.body.weight, body)


@pytest.mark.parametrize(
    "head",
    [
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)),
        nn.Sequential(OrderedDict(hidden=nn.Linear(4, 5), out=nn.Linear(5, 2))),
    ],
)
def test_with_head_replaces_the_last_layer_of_a_sequential_head(head: nn.Sequential):
    module = with_head(Features(classifier=head), 9)
    assert isinstance(head[-1], nn.Linear)
    assert (head[-1].in_features, head[-1].out_features) == (5, 9)
    assert num_parameters(module) == num_parameters(Features()) + 25 + 5 * 9 + 9


@pytest.mark.parametrize("head", [nn.Identity(), nn.Sequential(), nn.Sequential(nn.Linear(4, 2), nn.ReLU())])
def test_with_head_refuses_what_does_not_end_in_a_linear_layer(head: nn.Module):
    with pytest.raises(ValueError, match=r"head 'fc' must be an nn\.Linear or an nn\.Sequential that ends with one"):
        with_head(Features(fc=head), 3)


def test_a_nested_head_can_be_named():
    module = nn.Sequential(OrderedDict(net=Features(fc=nn.Linear(4, 2))))
    with_head(module, 6, "net.fc")
    assert module.get_submodule("net.fc").weight.shape == (6, 4)


def test_an_own_model_sees_the_channels_it_was_promised():
    """Grey images are repeated, colours averaged."""
    seen = []

    class Watching(nn.Module):
        def __init__(self, num_classes: int):
            super().__init__()
            self.head = nn.Linear(1, num_classes)

        def forward(self, images: Tensor) -> Tensor:
            seen.append(images)
            return self.head(images.mean((2, 3))[:, :1])

    colours = torch.tensor([1.0, 6.0, 2.0]).reshape(1, 3, 1, 1)
    UserModel(Watching, channels=1)(2, seed=0)(colours)
    UserModel(Watching, channels=3)(2, seed=0)(colours)
    UserModel(Watching, channels=3)(2, seed=0)(colours[:, :1])
    assert [images.flatten().tolist() for images in seen] == [[3.0], [1.0, 6.0, 2.0], [1.0, 1.0, 1.0]]


class Rows(nn.Module):
    """Looks at images as rows of numbers, which `view` gives of contiguous ones alone."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.head = nn.Linear(3 * 2 * 2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.view(len(images), -1))


@pytest.mark.parametrize("channels", [1, 3])
def test_an_own_model_may_view_images_as_rows(channels: int):
    assert UserModel(Rows)(7, seed=0)(torch.ones(5, channels, 2, 2)).shape == (5, 7)
