"""An image task: what it trains on, what it holds out, and whose seed its batches have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import FinetuneConfig, build_config
from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, open_split, write_split
from rayctsl.learning.finetune import Finetuner
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


def test_batches_are_made_as_the_config_says(shifted):
    data = CONFIG.data.model_copy(update={"batch_size": 5, "crop_padding": 0, "flip": False})
    task = ImageTask(shifted, CONFIG.model_copy(update={"data": data}))
    chosen = task.training.choose(0)
    assert len(chosen) == 5
    images = task.training.normalize(shifted.train.images(chosen))
    assert torch.equal(task.training(0)[0], images)


class Rows(nn.Module):
    """Looks at colour images as rows of numbers, which `view` gives of contiguous ones alone."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.head = nn.Linear(3 * 4 * 4, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.view(len(images), -1))


def test_an_own_model_gets_images_that_it_can_view_as_rows(tmp_path):
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        images = random.integers(0, 256, (8, 4, 4, 3), np.uint8)
        write_split(
            tmp_path / f"{split}.arrow", images, np.arange(8) % 2, SplitInfo("dots", split, (4, 4, 3), ("a", "b"))
        )
    dots = Dataset("dots", *(open_split(tmp_path / f"{split}.arrow") for split in ("train", "test")))
    task = ImageTask(dots, CONFIG, model=Rows)
    assert task.loss(task.build_module(), 0).isfinite()
    tuner = Finetuner(Rows(2), dots, FinetuneConfig(steps=1), seed=0)
    tuner.run()
    assert [point.step for point in tuner.curve] == [1]
