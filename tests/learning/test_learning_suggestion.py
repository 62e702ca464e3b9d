"""Options of the recipe: a frozen backbone, the head first, and a rate and steps measured on held-out images."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.learning import suggestion
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.start import Start
from rayctsl.learning.suggestion import PRESETS, Preset, _Search, choose_recipe
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


class Played(_Search):
    """Says what it would have measured, by the number of steps."""

    measured: ClassVar[dict[int, float]] = {}

    def judge(self, rate, steps):
        self.tried[rate, steps] = self.measured[steps]
        return self.measured[steps]

    def step_seconds(self):
        return 0.5


@pytest.mark.parametrize(
    ("measured", "enough"),
    [
        ({8: 0.5, 16: 0.6, 32: 0.602}, 32),  # a little better, but not worth another doubling
        ({8: 0.5, 16: 0.6, 32: 0.6}, 16),
        ({8: 0.5, 16: 0.6, 32: 0.4}, 16),
        ({8: 0.5, 16: 0.6, 32: 0.7, 50: 0.9}, 50),  # never beyond the preset's
    ],
)
def test_steps_are_doubled_as_long_as_that_is_worth_it(monkeypatch, measured, enough):
    search = Played(RANDOM, None, CONFIG, print, {(0.1, 8): measured[8]})
    monkeypatch.setattr(Played, "measured", measured)
    assert search.enough_steps(0.1, 8, 50) == enough
    assert {steps for _, steps in search.tried} == set(measured)


def test_a_step_is_timed_without_what_the_first_one_costs(stripes, monkeypatch):
    now, seconds, train_step = [0.0], iter([100.0, 2.0, 2.0, 2.0]), Finetuner._train_step

    def timed(tuner):
        now[0] += next(seconds)
        return train_step(tuner)

    monkeypatch.setattr(Finetuner, "_train_step", timed)
    monkeypatch.setattr("rayctsl.learning.suggestion.time.perf_counter", lambda: now[0])
    assert _Search(RANDOM, stripes, CONFIG, print).step_seconds() == 2.0


def test_what_the_search_took_of_the_time_is_not_there_for_the_training(stripes, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", Preset((0.1, 0.05), 8, 64))
    monkeypatch.setattr(suggestion, "_Search", Played)
    monkeypatch.setattr(Played, "measured", {8: 0.5})
    # 100 steps of half a second: two rates took 8 each, two seeds share the rest.
    assert choose_recipe(RANDOM, stripes, CONFIG, "tiny", 50.0).config.steps == 42


def test_a_search_in_a_hurry_takes_less_than_a_third_of_the_time(stripes, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", Preset((0.1, 0.05), 8, 64))
    monkeypatch.setattr(suggestion, "_Search", Played)
    monkeypatch.setattr(Played, "measured", {6: 0.5})
    # 60 steps of half a second: 18 are the search's, 6 for each rate and 6 to spare, and two seeds share 48.
    chosen = choose_recipe(RANDOM, stripes, CONFIG, "tiny", 30.0)
    assert (set(chosen.tried), chosen.config.steps) == ({(0.1, 6), (0.05, 6)}, 24)


def test_no_more_steps_are_taken_than_the_preset_has_however_much_time_there_is(stripes, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", Preset((0.1, 0.05), 8, 64))
    monkeypatch.setattr(suggestion, "_Search", Played)
    monkeypatch.setattr(Played, "measured", {8: 0.5})
    assert choose_recipe(RANDOM, stripes, CONFIG, "tiny", 3600.0).config.steps == 64


def test_what_is_tried_starts_from_the_initialization_and_trains_on_four_fifths_of_the_images(stripes):
    donor = RANDOM.build(4, 9)
    phi = {name: value.detach() for name, value in donor.named_parameters() if not name.startswith("head.")}
    tried = _Search(replace(RANDOM, phi=phi), stripes, CONFIG, print)._tuner()
    for name, value in tried.flat.name_backbone(tried.flat.backbone).items():
        assert torch.equal(value, phi[name]), name
    assert (len(tried.train_indices), len(tried.test_indices)) == (128, 32)
    assert tried.test_split is stripes.train
    assert sorted([*tried.train_indices, *tried.test_indices]) == list(range(160))


def test_a_rate_that_diverges_is_never_chosen(stripes, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", Preset((1e30, 1e-9), 3, 3))
    chosen = choose_recipe(RANDOM, stripes, CONFIG, "tiny")
    assert chosen.tried[1e30, 3] == 0.0
    assert chosen.config.alpha == 1e-9


def test_a_time_limit_cuts_the_steps(stripes):
    assert choose_recipe(RANDOM, stripes, CONFIG, None, 1e-9).config.steps == 1
    assert choose_recipe(RANDOM, stripes, CONFIG, None, 3600).config.steps == 12
    short = choose_recipe(RANDOM, stripes, CONFIG, "quick", 1e-9)
    assert short.config.steps == 1
    assert {steps for _, steps in short.tried} == {1}


def test_an_unknown_preset_is_refused(stripes):
    with pytest.raises(ValueError, match="choose quick, good, best"):
        choose_recipe(RANDOM, stripes, CONFIG, "better")
