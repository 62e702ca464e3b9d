"""An image task: what it trains on, what it holds out, and whose seed its batches have."""

from __future__ import annotations

import numpy as np
import pytest

from rayctsl.config import build_config
from rayctsl.learning.tasks import ImageTask

CONFIG = build_config({"data": {"tasks": ["shifted"], "batch_size": 8, "held_out": 0.25}})


def test_held_out_images_are_never_trained_on(shifted):
    task = ImageTask(shifted, CONFIG, needs_held_out=True)
    assert task.held_out is not None
    seen = {index for step in range(9) for index in task.training.choose(step)}
    held = {index for step in range(3) for index in task.held_out.choose(step)}
    assert (len(seen), len(held), seen & held) == (72, 24, set())


def test_who_needs_no_held_out_images_trains_on_all(shifted):
    task = ImageTask(shifted, CONFIG)
    assert {index for step in range(12) for index in task.training.choose(step)} == set(range(96))


@pytest.mark.parametrize(("wanted", "mirrored"), [(True, False), (False, False), ("always", True)])
def test_what_has_another_meaning_in_a_mirror_is_mirrored_only_on_demand(letters, wanted, mirrored):
    data = CONFIG.data.model_copy(update={"flip": wanted})
    task = ImageTask(letters, CONFIG.model_copy(update={"data": data}))
    assert task.training.draw(0).mirrored.any() == mirrored


def test_another_seed_has_other_batches(shifted):
    first, other = (ImageTask(shifted, CONFIG.model_copy(update={"seed": seed})) for seed in (0, 1))
    assert not np.array_equal(first.training.choose(0), other.training.choose(0))
