"""Fine-tuning that leaves a model: what is in the folder, which seed it is, and that it goes on after an end."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, open_split, write_split
from rayctsl.jobs import training
from rayctsl.jobs.model_card import SeedSummary, readme
from rayctsl.jobs.saved_model import open_model, save_model
from rayctsl.jobs.training import Asked, finetune_seeds
from rayctsl.learning.evaluation import accuracy_interval
from rayctsl.learning.finetune import Diverged, Finetuner
from rayctsl.learning.seeds import SeedWork, run_seeds
from rayctsl.storage import Storage
from tests.jobs.conftest import RANDOM, RECIPE
from tests.strict_device import counts


def test_the_best_seed_is_saved_with_its_card(stripes, saved):
    model = open_model(saved)
    card, result = model.card, finetune_seeds(RANDOM, stripes, RECIPE)
    assert card is not None
    worst, best = sorted(result.runs, key=lambda run: run.accuracy)
    assert worst.accuracy < best.accuracy
    assert (card.seed, card.accuracy) == (best.seed, best.accuracy)
    assert card.seeds.mean == pytest.approx(result.mean / 100)
    assert card.class_names == ("rows", "columns", "falling", "rising")
    assert sum(sum(row) for row in card.confusion) == card.test_size == 80
    assert sum(card.confusion[i][i] for i in range(4)) == round(80 * card.accuracy)
    assert card.accuracy_interval[0] < card.accuracy < card.accuracy_interval[1] or card.accuracy in (0, 1)
    assert card.dataset_checksum == stripes.train.info.checksum
    assert sorted(path.name for path in saved.iterdir()) == ["README.md", "model.json", "model.safetensors"]
    images = stripes.test.images(torch.arange(80).numpy())
    answers = model.finetuned.probabilities(images).argmax(1).numpy()
    assert (answers == stripes.test.labels).mean() == card.accuracy


def test_each_seed_in_a_folder_of_its_own(stripes, tmp_path):
    result = finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path / "all"), each=True)
    cards = [open_model(tmp_path / "all" / f"seed-{seed}").card for seed in range(2)]
    assert [100 * card.accuracy for card in cards if card] == result.accuracies
    with pytest.raises(ValueError, match="holds a model already"):
        finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path / "all"), each=True)


def stop(seed: int, point: object) -> None:
    raise KeyboardInterrupt


def test_a_card_tells_of_the_images_that_were_trained_on(stripes, tmp_path):
    some = RECIPE.model_copy(update={"train_size": 40, "seeds": 1, "steps": 1})
    finetune_seeds(RANDOM, stripes, some, save=str(tmp_path / "model"))
    card = open_model(tmp_path / "model").card
    assert card is not None
    assert (card.train_size, card.test_size) == (40, 80)


def test_a_card_tells_height_from_width(tmp_path):
    pixels, labels = np.random.default_rng(0).integers(0, 256, (16, 8, 12, 1), dtype=np.uint8), np.arange(16) % 2
    for split in ("train", "test"):
        write_split(tmp_path / f"{split}.arrow", pixels, labels, SplitInfo("wide", split, (8, 12, 1), ("a", "b")))
    wide = Dataset("wide", open_split(tmp_path / "train.arrow"), open_split(tmp_path / "test.arrow"))
    tuner = Finetuner(RANDOM.build(2, 0), wide, RECIPE, seed=0)
    card = save_model(Storage(tmp_path / "model"), tuner, RANDOM, 0, SeedSummary(count=1, mean=0.5, interval=None))
    assert (card.preprocessing.height, card.preprocessing.width, card.preprocessing.channels) == (8, 12, 1)


def test_stopped_it_does_not_go_on_with_other_images_of_that_name(stripes, tmp_path):
    target = str(tmp_path / "model")
    with pytest.raises(KeyboardInterrupt):
        finetune_seeds(RANDOM, stripes, RECIPE, save=target, on_point=stop)
    for split, other in (("train", "test"), ("test", "train")):
        changed = replace(stripes, **{split: getattr(stripes, other)})
        with pytest.raises(ValueError, match="unfinished fine-tuning with other settings"):
            finetune_seeds(RANDOM, changed, RECIPE, save=target)


def test_stopped_and_run_again_gives_the_same_file(stripes, saved, tmp_path):
    target = str(tmp_path / "model")
    with pytest.raises(KeyboardInterrupt):
        finetune_seeds(RANDOM, stripes, RECIPE, save=target, on_point=stop)
    state = load_file(tmp_path / "model/unfinished/seed-0.safetensors")
    assert state["step"].item() == 3
    with pytest.raises(ValueError, match="unfinished fine-tuning with other settings"):
        finetune_seeds(RANDOM, stripes, RECIPE.model_copy(update={"alpha": 0.01}), save=target)
    finetune_seeds(RANDOM, stripes, RECIPE, save=target)
    assert (tmp_path / "model/model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="holds a model already"):
        finetune_seeds(RANDOM, stripes, RECIPE, save=target)


def test_killed_between_two_seeds_models_the_rest_is_still_written(stripes, tmp_path, monkeypatch):
    target, written = tmp_path / "all", []

    def die(storage, *facts):
        if written:
            raise KeyboardInterrupt
        written.append(save_model(storage, *facts))

    monkeypatch.setattr(training, "save_model", die)
    with pytest.raises(KeyboardInterrupt):
        finetune_seeds(RANDOM, stripes, RECIPE, save=str(target), each=True)
    assert not (target / "seed-1").exists()
    monkeypatch.undo()
    finetune_seeds(RANDOM, stripes, RECIPE, save=str(target), each=True)
    assert open_model(target / "seed-1").card is not None
    assert not (target / "unfinished").exists()


def test_a_folder_with_files_of_ones_own_is_refused_before_anything_is_trained(stripes, tmp_path):
    def trained(seed: int, point: object) -> None:
        raise AssertionError("it has trained")

    (tmp_path / "README.md").write_text("mine")
    for each in (False, True):
        with pytest.raises(ValueError, match="already has files in it; choose a new or empty folder"):
            finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path), each=each, on_point=trained)
    with pytest.raises(ValueError, match="is a file; choose a new or empty folder"):
        finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path / "README.md"), on_point=trained)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("README.md", "mine")]


def test_a_folder_whose_recipe_was_never_written_whole_is_begun_again(stripes, tmp_path):
    """As a full disk leaves it."""
    (tmp_path / "unfinished").mkdir()
    finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path))
    assert open_model(tmp_path).card is not None


def test_a_preset_does_not_search_for_a_folder_that_is_taken(stripes, saved):
    with pytest.raises(ValueError, match="holds a model already"):
        training.suggested_recipe(RANDOM, stripes, Asked(RECIPE, "best"), save=str(saved), on_trial=pytest.fail)


ASKED = Asked(RECIPE.model_copy(update={"alpha": 0.5, "steps": 100}), "best", 60)


def begin_suggested(stripes: Dataset, folder: Path, asked: Asked | None = ASKED) -> None:
    """A fine-tuning whose recipe was suggested for what was asked, stopped at its first point."""
    with pytest.raises(KeyboardInterrupt):
        finetune_seeds(RANDOM, stripes, RECIPE, asked=asked, save=str(folder), on_point=stop)


def test_what_was_begun_with_a_suggested_recipe_goes_on_with_it(stripes, tmp_path):
    begin_suggested(stripes, tmp_path)
    again = training.suggested_recipe(RANDOM, stripes, ASKED, save=str(tmp_path), on_trial=pytest.fail)
    assert again == RECIPE
    finetune_seeds(RANDOM, stripes, again, asked=ASKED, save=str(tmp_path))
    assert open_model(tmp_path).card is not None


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, preset="quick"),
        replace(ASKED, time_limit=61),
        replace(ASKED, config=ASKED.config.model_copy(update={"seeds": 5, "freeze_backbone": True})),
    ],
    ids=["preset", "time limit", "recipe"],
)
def test_what_was_begun_with_a_suggested_recipe_is_not_gone_on_with_for_another_wish(stripes, tmp_path, other):
    begin_suggested(stripes, tmp_path)
    with pytest.raises(ValueError, match="unfinished fine-tuning with other settings"):
        training.suggested_recipe(RANDOM, stripes, other, save=str(tmp_path), on_trial=pytest.fail)
    with pytest.raises(ValueError, match="unfinished fine-tuning with other settings"):
        finetune_seeds(RANDOM, stripes, RECIPE, asked=other, save=str(tmp_path))


def test_what_was_begun_with_a_recipe_of_ones_own_is_not_gone_on_with_by_a_preset(stripes, tmp_path):
    begin_suggested(stripes, tmp_path, asked=None)
    with pytest.raises(ValueError, match="unfinished fine-tuning with other settings"):
        training.suggested_recipe(RANDOM, stripes, Asked(RECIPE, "best"), save=str(tmp_path), on_trial=pytest.fail)
    finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path))


def test_an_unfinished_folder_that_does_not_say_what_was_asked_for_goes_on(stripes, tmp_path):
    """An earlier version has begun it."""
    begin_suggested(stripes, tmp_path)
    file = tmp_path / "unfinished/recipe.json"
    file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "asked"}))
    again = training.suggested_recipe(RANDOM, stripes, ASKED, save=str(tmp_path), on_trial=pytest.fail)
    assert again == RECIPE
    finetune_seeds(RANDOM, stripes, again, asked=ASKED, save=str(tmp_path))


def test_as_many_images_are_drawn_as_there_are_and_no_more(stripes):
    for count in (1, len(stripes.train)):
        training.check_train_size(stripes, RECIPE.model_copy(update={"train_size": count}))
    with pytest.raises(ValueError, match="is too large: stripes has"):
        training.check_train_size(stripes, RECIPE.model_copy(update={"train_size": len(stripes.train) + 1}))


@pytest.mark.parametrize(("count", "percent", "share"), [(2, 12.5, 0.125), (2, 140.0, 1.0), (1, math.nan, None)])
def test_a_card_counts_in_shares_what_a_result_counts_in_percent(saved, count, percent, share):
    result: Any = SimpleNamespace(runs=[None] * count, mean=50.0, interval=percent)
    assert training._summary(result) == SeedSummary(count=count, mean=0.5, interval=share)


def test_a_cards_text_is_in_percent_and_its_entry_for_hubs_in_shares(saved):
    card = open_model(saved).card
    assert card is not None
    seeds = SeedSummary(count=2, mean=0.5, interval=0.125)
    card = card.changed(accuracy=0.75, accuracy_interval=(0.5, 0.875), seeds=seeds)
    text = readme(card)
    assert "| accuracy on 80 test images | 75.00 % (50.00 to 87.50) |" in text
    assert "| mean of 2 seeds | 50.00 ± 12.50 % |" in text
    assert "\n    - type: accuracy\n      value: 0.75\n" in text


@pytest.mark.slow
def test_seeds_side_by_side_are_the_same_to_the_bit(stripes, tmp_path):
    points = []
    for name, workers in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        work = SeedWork(RANDOM, stripes, RECIPE, str(tmp_path / name), threads=1)
        run_seeds(work, lambda seed, point: points.append((seed, point)), workers)
    for seed in range(2):
        left, right = ((tmp_path / name / f"seed-{seed}.safetensors").read_bytes() for name in ("one", "two"))
        assert left == right
    assert sorted(points[:4], key=str) == sorted(points[4:], key=str)


def test_this_process_computes_with_the_threads_asked_for(stripes):
    before, seen = torch.get_num_threads(), []
    short = RECIPE.model_copy(update={"steps": 1, "seeds": 1})  # on a busy machine two threads wait long for each other
    finetune_seeds(RANDOM, stripes, short, threads=2, on_point=lambda *point: seen.append(torch.get_num_threads()))
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_a_divergence_names_the_way_out(stripes):
    with pytest.raises(Diverged, match=r"seed 0 diverged before step 3: .*choose a smaller alpha"):
        finetune_seeds(RANDOM, stripes, RECIPE.model_copy(update={"alpha": 1e12}))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is not there"),
        (lambda folder: (folder / "model.json").unlink(), "model.json is not there"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "sha256 differs"),
        (lambda folder: (folder / "model.json").write_text(json.dumps({"version": 9})), "newer rayctsl"),
    ],
)
def test_a_spoilt_folder_is_refused_with_one_sentence(saved, tmp_path, spoil, sentence):
    folder = shutil.copytree(saved, tmp_path / "copy")
    spoil(folder)
    with pytest.raises(ValueError, match=sentence):
        open_model(folder)


def test_wilsons_interval_against_published_numbers():
    low, high = accuracy_interval(81, 263)  # Newcombe 1998, table I: 0.2553 to 0.3662
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert accuracy_interval(0, 20)[0] == 0
    assert round(accuracy_interval(0, 20)[1], 4) == 0.1611


def test_on_an_accelerator_when_there_is_one(stripes, saved, strict_device, tmp_path):
    seen = []
    finetune_seeds(RANDOM, stripes, RECIPE, save=str(tmp_path / "model"), on_point=lambda *point: seen.append(point))
    assert len(seen) == 4
    assert counts["to device"] > 0, "nothing was computed there"
    card, there = open_model(saved).card, open_model(tmp_path / "model").card
    assert card is not None
    assert there is not None
    assert there.accuracy == pytest.approx(card.accuracy, abs=0.1)
