"""The check for people with a GPU, run on the make-believe one; and what it says where there is none."""

from __future__ import annotations

import json

import pytest
import torch

from rayctsl.bench import accelerator
from rayctsl.commands.bench import main
from rayctsl.config import METHOD_CONFIGS


def test_without_an_accelerator_it_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["accelerator", "--json"]) == 2
    assert "no accelerator" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("default:called a synchronizing operation")
def test_every_promise_is_checked_and_reported(strict_device, capsys, monkeypatch, tmp_path):
    """With two methods; `tests/learning/test_learning_device.py` has them all."""
    monkeypatch.setattr(accelerator, "METHOD_CONFIGS", {name: METHOD_CONFIGS[name] for name in ("shifting", "fomaml")})
    report = tmp_path / "report.md"
    options = ["--model", "demo", "--sizes", "8", "--batch-size", "8", "--steps", "1", "--rounds", "1"]
    assert main(["accelerator", "--json", "--report", str(report), *options]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["verdict"] == {"works": "yes", "waits": "yes", "bits": "yes", "graphs": "yes", "abort": "yes"}
    assert set(result["works"]) == {"shifting", "fomaml"}
    assert result["device"] == "strict device (sham)"
    assert result["waits_per_chunk"] == 1
    assert result["graphs"]["largest_difference"] == 0
    assert result["speed"]["obvious_steps_per_s"] > 0
    assert "| waits | yes |" in report.read_text()


def test_how_far_a_device_is_off_is_measured_by_how_far_phi_has_moved_and_not_by_its_size():
    first, here, there = (torch.tensor([1000.0, moved]) for moved in (0.0, 2.0, 3.0))
    assert accelerator.apart(first, here, there) == 0.5
