"""A model of timm through everything: weights of a file, meta-training, cards, fine-tuning, a worker's job, export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file

import rayctsl
from rayctsl.commands import finetune
from rayctsl.config import FinetuneConfig, load_config
from rayctsl.data.library import Dataset
from rayctsl.jobs.export import export_model
from rayctsl.jobs.job import run_job
from rayctsl.jobs.model import Finetuned
from rayctsl.registry import Initialization
from rayctsl.storage import Storage

FAMILIES = ["test_resnet", *(pytest.param(name, marks=pytest.mark.long) for name in ("test_vit", "test_convnext"))]
IMAGES = torch.randint(0, 256, (4, 12, 12, 1), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
RECIPE = FinetuneConfig(steps=3, batch_size=8, alpha=0.01, crop_padding=1, seeds=1)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("timm_library")
@pytest.mark.parametrize("name", FAMILIES)
def test_from_a_file_to_an_exported_program(name: str, stripes: Dataset, tmp_path: Path, capsys):
    root, donor = str(stripes.train.path.parent.parent), tmp_path / "donor.safetensors"
    backbone = write_donor(name, donor)
    words = ["--init", f"timm/{name}@{donor}", "--dataset", "stripes", "--data-root", root, "--seeds", "1"]
    words += ["--steps", "2", "--batch-size", "8", "--alpha", "0.01", "--save", str(tmp_path / "plain")]
    assert finetune.main(words) == 0, capsys.readouterr().err
    card = rayctsl.open_model(tmp_path / "plain").card
    assert card is not None
    assert (card.started_from.name, card.model.name) == (f"timm/{name}", f"timm/{name}")

    made = meta_train(name, donor, stripes, tmp_path / "run")
    assert made.card.model.name == f"timm/{name}"
    assert made.phi().keys() == backbone.keys()  # timm's own names
    moved = torch.cat([(made.phi()[key] - backbone[key]).flatten() for key in backbone])
    assert 0 < float(moved.abs().max()) < 1  # it began at the donor's weights and went on from there

    rayctsl.finetune(made, stripes, config=RECIPE, save=tmp_path / "model")
    assert rayctsl.open_model(tmp_path / "model").finetuned.probabilities(IMAGES.numpy()).shape == (4, 4)

    outcome, job = run_as_a_job(made, root, tmp_path / "job")
    assert outcome == "succeeded"
    data = job.read("attempt-1/model.safetensors")
    assert load(data).keys() == load((tmp_path / "model/model.safetensors").read_bytes()).keys()
    parity(Finetuned.load(data), tmp_path / "job.pt2")


def write_donor(name: str, target: Path) -> dict[str, torch.Tensor]:
    """Weights as people have them from elsewhere; returns the backbone's parameters."""
    import timm

    torch.manual_seed(3)
    module = timm.create_model(name, num_classes=11)
    save_file(module.state_dict(), target)
    head = module.pretrained_cfg["classifier"]
    return {key: value.detach() for key, value in module.named_parameters() if not key.startswith(f"{head}.")}


def meta_train(name: str, donor: Path, stripes: Dataset, run: Path) -> Initialization:
    config = load_config(
        None,
        {
            "model.name": f"timm/{name}",
            "model.weights": str(donor),
            "inner_steps": 2,
            "trajectories": 2,
            "batch_size": 8,
            "inner.alpha": 0.01,
            "beta": 0.1,
        },
    )
    return rayctsl.train(config, tasks={"one": stripes, "two": stripes}, run_dir=run, engine="local")


def parity(model: Finetuned, target: Path) -> None:
    """The program read back from its file answers as the model does."""
    assert export_model(model, "torch", target) <= 1e-5
    shares = torch.export.load(target).module()(IMAGES.permute(0, 3, 1, 2) / 255).softmax(1)
    torch.testing.assert_close(shares, model.probabilities(IMAGES.numpy()), atol=1e-5, rtol=0)


def run_as_a_job(made: Initialization, root: str, folder: Path) -> tuple[str, Storage]:
    """What a worker of the service does with it."""
    spec = {
        "dataset": "stripes",
        "data_root": root,
        "initialization": {"id": made.id, "sha256": made.card.sha256, "path": made.path},
        "seed": 0,
        "compare_with_scratch": False,
        "config": RECIPE.model_dump(mode="json"),
    }
    job = Storage(folder)
    job.write("spec.json", json.dumps(spec).encode())
    return run_job(job, 1).status, job
