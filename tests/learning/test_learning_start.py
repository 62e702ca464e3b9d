"""What fine-tuning starts from, by the names that people write."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from rayctsl.card import OwnModel
from rayctsl.config import FinetuneConfig, ModelConfig, build_config
from rayctsl.learning.start import find_start, start_from
from rayctsl.models.own import UserModel
from rayctsl.registry import save_initialization
from rayctsl.storage import Storage


@pytest.mark.parametrize(
    ("asked", "built"), [("resnet34", "resnet34"), ("resnet18", "resnet18"), ("resnet20", "resnet18")]
)
def test_imagenet_is_the_configs_model_where_there_are_weights_for_it(asked, built):
    assert find_start("imagenet", ModelConfig(name=asked)).model == ModelConfig(name=built, weights="imagenet")


def test_weights_of_a_local_file_are_known_by_their_checksum(tmp_path: Path):
    file = tmp_path / "weights.pth"
    with pytest.raises(ValueError, match="does not exist"):
        find_start(f"imagenet@{file}")
    file.write_bytes(b"weights")
    start = find_start(f"imagenet@{file}")
    assert (start.name, start.model.weights) == ("imagenet", str(file))
    assert start.sha256 == hashlib.sha256(b"weights").hexdigest()


def test_an_own_models_card_brings_its_recipe_and_its_channels(tmp_path: Path):
    recipe = FinetuneConfig(steps=7)
    config = build_config({"finetune": recipe.model_dump(), "data": {"tasks": ["latin"], "channels": 1}})
    config = config.model_copy(update={"model": config.model.model_copy(update={"own": "mine.Network"})})
    saved = save_initialization(
        Storage(tmp_path), {"body.weight": torch.ones(2)}, config, spent={"inner": 1}, metrics={}
    )
    assert isinstance(saved.card.model, OwnModel)
    own = UserModel(torch.nn.Identity)
    start = start_from(saved, own)
    assert (start.recipe, start.own, own.channels, start.sha256) == (recipe, own, 1, saved.card.sha256)
