"""Options of the recipe: a frozen backbone, the head first, and a rate and steps measured on held-out images."""

from __future__ import annotations

import pytest
import torch

from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.start import Start
from rayctsl.learning.suggestion import PRESETS, Preset, choose_recipe
from tests.stripes import write_stripes

RANDOM = Start("none", ModelConfig(name="resnet8", width=4))
CONFIG = FinetuneConfig(steps=12, batch_size=32, alpha=0.05, crop_padding=1, flip=False, seeds=2, evaluate_every=12)


@pytest.fixture(scope="module")
def stripes(tmp_path_factory):
    return write_stripes(tmp_path_factory.mktemp("stripes"))


def tuner(stripes, **options) -> Finetuner:
    return Finetuner(RANDOM.build(4, 0), stripes, CONFIG.model_copy(update=options), seed=0)


def test_a_frozen_backbone_learns_with_its_head_alone(stripes):
    probe = tuner(stripes, freeze_backbone=True)
    backbone, head = probe.flat.backbone.clone(), probe.flat.head.clone()
    probe.run()
    assert torch.equal(probe.flat.backbone, backbone)
    assert not torch.equal(probe.flat.head, head)


def test_the_head_comes_first_and_the_backbone_follows(stripes):
    warm = tuner(stripes, head_steps=3)
    backbone = warm.flat.backbone.clone()
    warm.run(3)
    assert torch.equal(warm.flat.backbone, backbone)
    warm.run(4)
    assert not torch.equal(warm.flat.backbone, backbone)
    again = tuner(stripes, head_steps=3)
    again.run(2)
    other = tuner(stripes, head_steps=3)
    other.load_state(again.state())
    other.run(4)
    assert torch.equal(other.flat.vector, warm.flat.vector)


def test_the_better_rate_is_found_and_steps_are_doubled_while_it_helps(stripes, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", Preset((1e-6, 0.05), 8, 64))
    chosen = choose_recipe(RANDOM, stripes, CONFIG, "tiny")
    assert chosen.config.alpha == 0.05
    assert chosen.tried[0.05, 8] > chosen.tried[1e-6, 8]
    steps = sorted(steps for rate, steps in chosen.tried if rate == 0.05)
    assert steps == [8 * 2**i for i in range(len(steps))]
    best = max(chosen.tried, key=lambda pair: chosen.tried[pair])
    assert chosen.tried[0.05, chosen.config.steps] >= chosen.tried[best] - 0.005
    assert choose_recipe(RANDOM, stripes, CONFIG, "tiny") == chosen


def test_a_time_limit_cuts_the_steps(stripes):
    assert choose_recipe(RANDOM, stripes, CONFIG, None, 1e-9).config.steps == 1
    assert choose_recipe(RANDOM, stripes, CONFIG, None, 3600).config.steps == 12
    short = choose_recipe(RANDOM, stripes, CONFIG, "quick", 1e-9)
    assert short.config.steps == 1
    assert {steps for _, steps in short.tried} == {1}


def test_an_unknown_preset_is_refused(stripes):
    with pytest.raises(ValueError, match="choose quick, good, best"):
        choose_recipe(RANDOM, stripes, CONFIG, "better")
