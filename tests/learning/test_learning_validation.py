"""The objective of a search: measured on images that nothing was tuned on, tuned on images that nothing trained on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rayctsl.config import build_config
from rayctsl.data.library import Dataset
from rayctsl.learning import validation
from rayctsl.sweeps.config import Sweep

CONFIG = build_config({"model": {"name": "resnet8", "width": 4}, "data": {"tasks": ["shifted"]}})
SWEEP = Sweep.model_validate({"search": {"beta": {"grid": [1]}}, "validation": {"steps": 1, "held_out": 0.5}})


def test_every_image_has_one_purpose(shifted: Dataset) -> None:
    seen, tuned, measured = validation.divide(shifted, SWEEP)
    assert sorted([*seen, *tuned, *measured]) == list(range(96))
    assert (len(seen), len(tuned), len(measured)) == (48, 24, 24)


def test_meta_training_has_the_images_that_are_left(shifted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "open_dataset", lambda name, root: shifted)
    task: Any = validation.training_problem(CONFIG, SWEEP).build_task("shifted", "cpu")
    seen, everything = validation.divide(shifted, SWEEP)[0], np.arange(48)
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
    monkeypatch.setattr(validation, "open_dataset", lambda name, root: shifted)
    assert validation.validate({}, CONFIG, SWEEP) == 50
    _, tuned, measured = validation.divide(shifted, SWEEP)
    for given in used:
        np.testing.assert_array_equal(given[0], tuned)
        np.testing.assert_array_equal(given[1], measured)
