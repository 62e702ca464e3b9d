"""What a cell computes, and from what it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.config import build_config
from rayctsl.experiments.image import compute
from rayctsl.experiments.image.records import TestArguments as Arguments
from rayctsl.flat import FlatModule
from rayctsl.models import build_model
from rayctsl.registry import save_initialization
from rayctsl.storage import Storage


def test_a_phi_that_another_training_has_left_is_not_tested(tmp_path: Path) -> None:
    config = build_config({"model": {"name": "resnet8", "width": 4}, "data": {"tasks": ["digits"]}})
    flat = FlatModule(build_model(config.model, 2, seed=0), "head")
    save_initialization(
        Storage(tmp_path / "runs/x"), flat.name_backbone(flat.backbone), config, spent={"inner": 0}, metrics={}
    )
    asked = Arguments(
        initialization="runs/x",
        sha256="of what was there before",
        target="digits",
        seed=0,
        finetune=config.finetune.model_dump(mode="json"),
        root=str(tmp_path / "no data"),
        gpus=0,
    )
    with pytest.raises(ValueError, match=r"runs/x is not what the training left; delete its cell to train again"):
        compute.test(asked, str(tmp_path))
    assert not (tmp_path / "no data").exists(), "it went on to the target"
