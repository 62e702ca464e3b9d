"""Exported programs: the same logits as the model, any batch, class names on board, no rayctsl needed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rayctsl.config import ModelConfig
from rayctsl.data.store import SplitInfo
from rayctsl.jobs.export import export_model
from rayctsl.jobs.model import Finetuned, save_finetuned
from rayctsl.models import build_model

INFO = SplitInfo("made", "train", (32, 32, 3), ("a", "b", "c"), mean=(120.0, 110.0, 100.0), std=(60.0, 61.0, 62.0))


def finetuned(name: str) -> Finetuned:
    config = ModelConfig(name=name) if name.startswith("timm/") else ModelConfig(name=name, width=4)
    module = build_model(config, 3, seed=0)
    with torch.no_grad():
        module.train()(torch.randn(8, 3, 32, 32))  # statistics that are not the fresh ones
    return Finetuned.load(save_finetuned(module, config, INFO))


@pytest.mark.parametrize("name", ["resnet8", pytest.param("timm/test_vit", marks=pytest.mark.long)])
def test_torch_program(name, tmp_path):
    model = finetuned(name)
    assert export_model(model, "torch", tmp_path / "m.pt2") <= 1e-5
    files = {"classes.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=files).module()
    assert json.loads(files["classes.json"]) == ["a", "b", "c"]
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    shares = program(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).softmax(1)
    torch.testing.assert_close(shares, model.probabilities(images), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_onnx_program(tmp_path):
    import onnxruntime

    model = finetuned("resnet8")
    assert export_model(model, "onnx", tmp_path / "m.onnx") <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c"]
    assert session.run(["logits"], {"images": np.zeros((7, 3, 32, 32), np.float32)})[0].shape == (7, 3)
