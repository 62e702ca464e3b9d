"""Models of timm: built from the seed, their head found, any image taken, weights going both ways."""

from __future__ import annotations

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rayctsl.config import ModelConfig
from rayctsl.models import build_model, find_head
from rayctsl.models.timm_models import _Fit, _switch_off_chance

pytestmark = pytest.mark.usefixtures("timm_library")
FAMILIES = {"timm/test_resnet": "fc", "timm/test_vit": "head", "timm/test_convnext": "head.fc"}


@pytest.mark.parametrize(("name", "head"), FAMILIES.items())
def test_the_head_is_timms_and_the_backbone_depends_on_the_seed_alone(name: str, head: str):
    few, many, other = (build_model(ModelConfig(name=name), n, seed).eval() for n, seed in ((2, 7), (9, 7), (2, 8)))
    assert find_head(few) == head
    backbones = [
        torch.cat([v.flatten() for k, v in m.named_parameters() if not k.startswith(f"{head}.")])
        for m in (few, many, other)
    ]
    assert torch.equal(backbones[0], backbones[1])
    assert not torch.equal(backbones[0], backbones[2])
    assert many(torch.zeros(2, 1, 28, 28)).shape == (2, 9)
    assert torch.equal(pickle.loads(pickle.dumps(few))(torch.ones(1, 3, 32, 32)), few(torch.ones(1, 3, 32, 32)))


def test_grey_images_are_seen_as_colour_ones():
    model = build_model(ModelConfig(name="timm/test_vit"), 3, seed=0).eval()
    grey = torch.rand(2, 1, 20, 20)
    assert torch.equal(model(grey), model(grey.expand(-1, 3, -1, -1)))


def test_nothing_in_training_is_left_to_chance():
    model = build_model(ModelConfig(name="timm/efficientnet_b0"), 3, seed=0).train()
    images = torch.rand(4, 3, 32, 32)
    assert torch.equal(model(images), model(images))


def test_neither_dropout_nor_stochastic_depth_stays_on():
    from timm.layers import DropPath

    layers = nn.Sequential(DropPath(0.5), nn.Dropout(0.5), nn.Sequential(nn.Dropout2d(0.5), DropPath(0.5))).train()
    _switch_off_chance(layers)
    images = torch.ones(64, 3, 2, 2)
    assert torch.equal(layers(images), images)


@pytest.mark.parametrize(
    ("facts", "given", "seen"),
    [
        ({}, (40, 48), (40, 48)),
        ({}, (16, 64), (32, 32)),  # too low, if wide
        ({}, (64, 16), (32, 32)),
        ({"min_input_size": (3, 48, 48)}, (40, 48), (48, 48)),
        ({"fixed_input_size": True, "input_size": (3, 96, 96)}, (200, 200), (96, 96)),
    ],
)
def test_only_images_that_do_not_fit_are_resized(facts, given, seen):
    assert _Fit(facts)(nn.Identity(), (torch.zeros(1, 1, *given),)).shape == (1, 3, *seen)


def test_weights_of_a_local_file_fit_all_but_the_head(tmp_path):
    import timm

    donor = timm.create_model("test_resnet", num_classes=11)
    save_file(donor.state_dict(), tmp_path / "donor.safetensors")
    model = build_model(ModelConfig(name="timm/test_resnet", weights=str(tmp_path / "donor.safetensors")), 5, seed=1)
    ours, theirs = model.state_dict(), donor.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.startswith("fc."))
    assert ours["fc.weight"].shape[0] == 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "timm/resnet_18"}, r"timm has no model 'resnet_18'; did you mean 'resnet18'\?"),
        ({"name": "timm/deit_tiny_distilled_patch16_224"}, "has no single head"),
        ({"name": "timm/test_resnet", "width": 8}, "has its own widths"),
        ({"name": "timm/test_resnet", "weights": "nowhere.safetensors"}, "does not exist"),
    ],
)
def test_bad_input_is_refused_with_one_sentence(arguments: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        build_model(ModelConfig(**arguments), 3)
