"""A small dataset and a model fine-tuned on it, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset
from rayctsl.jobs.training import finetune_seeds
from rayctsl.learning.start import Start
from tests.stripes import write_stripes

# So short that no seed is perfect: the second is the better one.
RECIPE = FinetuneConfig(steps=6, batch_size=32, alpha=0.05, crop_padding=1, flip=False, seeds=2, evaluate_every=3)
RANDOM = Start("none", ModelConfig(name="resnet8", width=4))


@pytest.fixture(scope="session")
def stripes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_stripes(tmp_path_factory.mktemp("stripes"))


@pytest.fixture(scope="session")
def saved(stripes: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a saved model."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    finetune_seeds(RANDOM, stripes, RECIPE, save=str(folder))
    return folder
