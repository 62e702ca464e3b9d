"""The objective of a search: measured on images that nothing was tuned on, tuned on images that nothing trained on."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rayctsl.config import ValidationConfig, build_config
from rayctsl.data.library import Dataset
from rayctsl.learning import validation

CONFIG = build_config({"model": {"name": "resnet8", "width": 4}, "data": {"tasks": ["shifted"]}})
KEPT = ValidationConfig(steps=1, held_out=0.5)


def test_every_image_has_one_purpose(shifted: Dataset) -> None:
    seen, tuned, measured = validation.divide(shifted, KEPT, seed=0)
    assert sorted([*seen, *tuned, *measured]) == list(range(96))
    assert (len(seen), len(tuned), len(measured)) == (48, 24, 24)


def test_no_more_images_are_measured_on_than_asked_for(shifted: Dataset) -> None:
    *_, everything = validation.divide(shifted, KEPT, seed=0)
    *others, few = validation.divide(shifted, KEPT.model_copy(update={"test_size": 5}), seed=0)
    np.testing.assert_array_equal(few, everything[:5])
    assert [len(part) for part in others] == [48, 24]  # the others are what they were


def test_meta_training_has_the_images_that_are_left(shifted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "open_data", lambda name, config: shifted)
    task: Any = validation.training_problem(CONFIG, KEPT, seed=0).build_task("shifted", "cpu")
    seen, everything = validation.divide(shifted, KEPT, seed=0)[0], np.arange(48)
    np.testing.assert_array_equal(task.dataset.train.images(everything), shifted.train.images(seen))
    np.testing.assert_array_equal(task.dataset.train.labels, shifted.train.labels[seen])


def test_accuracy_is_measured_on_images_that_nothing_was_tuned_on(
    shifted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[Any, Any]] = []

    def spy(module: Any, dataset: Any, recipe: Any, *, train_indices: Any, test_indices: Any, **more: Any) -> Any:
        used.append((train_indices, test_indices))
        return SimpleNamespace(run=lambda: None, curve=[SimpleNamespace(accuracy=0.5)])

    monkeypatch.setattr(validation, "Finetuner", spy)
    monkeypatch.setattr(validation, "open_data", lambda name, config: shifted)
    assert validation.validate({}, CONFIG, KEPT, seed=0) == 50
    _, tuned, measured = validation.divide(shifted, KEPT, seed=0)
    for given in used:
        np.testing.assert_array_equal(given[0], tuned)
        np.testing.assert_array_equal(given[1], measured)


def test_a_searchs_run_has_its_methods_tasks_and_their_held_out_images(
    shifted: Dataset, letters: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = {"shifted": shifted, "letters": letters}
    monkeypatch.setattr(validation, "open_data", lambda name, config: opened[name])
    method, data = {"name": "single", "source": "letters"}, {"tasks": ["shifted", "letters"]}
    assert validation.training_problem(build_config({"method": method, "data": data}), KEPT, 0).task_names == (
        "letters",
    )
    problem = validation.training_problem(build_config({"method": {"name": "fomaml"}, "data": data}), KEPT, 0)
    task: Any = problem.build_task("shifted", "cpu")
    assert (problem.task_names, len(task.held_out.indices)) == (("shifted", "letters"), 5)  # a tenth of 48


def test_a_validation_fine_tunes_by_its_own_recipe_and_measures_once(
    shifted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And needs no weights besides phi: those that meta-training began with may be gone."""
    recipes: list[Any] = []

    def spy(module: Any, dataset: Any, recipe: Any, **more: Any) -> Any:
        recipes.append(recipe)
        return SimpleNamespace(run=lambda: None, curve=[SimpleNamespace(accuracy=0.5)])

    monkeypatch.setattr(validation, "Finetuner", spy)
    monkeypatch.setattr(validation, "open_data", lambda name, config: shifted)
    model = CONFIG.model.model_copy(update={"weights": "gone.safetensors"})
    wanted = KEPT.model_copy(update={"steps": 7, "alpha": 0.25})
    validation.validate({}, CONFIG.model_copy(update={"model": model}), wanted, seed=0)
    validation.validate({}, CONFIG, wanted.model_copy(update={"evaluate_every": 3}), seed=0)
    assert [(recipe.steps, recipe.alpha, recipe.evaluate_every) for recipe in recipes] == [(7, 0.25, 7), (7, 0.25, 3)]


def test_every_seed_of_a_validation_is_a_training_of_its_own(shifted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def spy(module: Any, dataset: Any, recipe: Any, *, seed: int, **more: Any) -> Any:
        seeds.append(seed)
        return SimpleNamespace(run=lambda: None, curve=[SimpleNamespace(accuracy=seed / 4)])

    monkeypatch.setattr(validation, "Finetuner", spy)
    monkeypatch.setattr(validation, "open_data", lambda name, config: shifted)
    assert validation.validate({}, CONFIG, KEPT.model_copy(update={"seeds": 3}), seed=7) == 25
    assert seeds == [0, 1, 2]


def test_held_out_images_do_not_come_back_through_pickle(shifted: Dataset) -> None:
    seen, *_ = validation.divide(shifted, KEPT, seed=0)
    part = pickle.loads(pickle.dumps(validation.PartOfSplit(shifted.train, seen)))
    assert len(part) == len(seen)
    np.testing.assert_array_equal(part.labels, shifted.train.labels[seen])
    np.testing.assert_array_equal(part.images(np.arange(len(seen))), shifted.train.images(seen))
