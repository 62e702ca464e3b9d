"""`experiments imagenet` from images in ImageNet's folder layout to Table 1 and the gain curves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from matplotlib import pyplot as plt
from PIL import Image
from safetensors.torch import save_file

from rayctsl.commands.experiments import main
from rayctsl.config import ModelConfig
from rayctsl.data.catalog import CATALOG
from rayctsl.data.entries import SOURCES_FOLDER
from rayctsl.data.importing import import_dataset
from rayctsl.data.prepare import prepare_entry
from rayctsl.experiments.image.records import Stages
from rayctsl.experiments.image.suite import load_suite
from rayctsl.experiments.image.summary import Report
from rayctsl.experiments.imagenet.report import gains_over_base, plot_gains
from rayctsl.models import build_model
from rayctsl.registry import open_initialization

TARGETS = ["vgg_pets", "food101"]
SUITE = {
    "base": {
        "inner_steps": 2,
        "trajectories": 2,
        "model": {"name": "resnet18", "weights": "imagenet"},
        "data": {"tasks": ["imagenet_1@16", "imagenet_6@16"], "batch_size": 4},
        "inner": {"alpha": 0.01, "weight_decay": 0},
        "finetune": {"steps": 2, "train_size": 8, "batch_size": 4, "alpha": 0.01, "seeds": 1},
        "log_every": 1,
    },
    "targets": TARGETS,
    "methods": {
        "scratch": {},
        "mtl": {"alpha, beta": [0.003, 0.01]},
        "reptile": {"beta": [0.5, 1]},
        "shifting": {"beta": [0.001, 0.003]},
    },
    "tune": {"trajectories": 1, "validation": {"steps": 1, "batch_size": 4, "train_size": 8, "test_size": 20}},
    "seeds": 1,
    "sizes": [4],
}


def write_images(folder: Path, classes: list[str], count: int) -> None:
    random = np.random.default_rng(len(classes))
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for image in range(count):
            pixels = (random.integers(0, 100, (14, 20, 3)) + number % 150).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{name}_{image}.JPEG", quality=80)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two WordNet splits from folders train/<wnid>/ and val/<wnid>/, and two targets."""
    downloads, root = tmp_path_factory.mktemp("ilsvrc"), tmp_path_factory.mktemp("imagenet-data")
    splits = json.loads((SOURCES_FOLDER / "imagenet_splits.json").read_text())["splits"]
    for number in (1, 6):
        entry = CATALOG[f"imagenet_{number}"]
        wnids = next(list(split["classes"]) for split in splits if split["split"] == number)
        write_images(downloads / entry.origin / "train", wnids, 2)
        write_images(downloads / entry.origin / "val", wnids, 1)
        made = dataclasses.replace(entry, num_test=len(wnids))  # the true one has 50 a class
        (root / f"{entry.name}@16").mkdir()
        prepare_entry(made, 16, root / f"{entry.name}@16", downloads, workers=1)
    for name in TARGETS:
        folder = downloads / name
        write_images(folder / "train", ["one", "two"], 6)
        write_images(folder / "test", ["one", "two"], 4)
        import_dataset(name, folder, str(root), size=16, workers=1, published=True)
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights as a local file, with the head of 1,000 classes that nobody needs."""
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    save_file(build_model(ModelConfig(name="resnet18"), 1000, seed=7).state_dict(), path)
    return path


@pytest.mark.slow
def test_from_weights_to_table_1(root, weights, tmp_path, capsys):
    suite, out = tmp_path / "suite.yaml", tmp_path / "out"
    methods = {name: SUITE["methods"][name] for name in ("scratch", "shifting")}
    suite.write_text(yaml.safe_dump({**SUITE, "methods": methods, "targets": TARGETS[:1]}, sort_keys=False))
    flags = ["--suite", str(suite), "--out", str(out), "--data-root", str(root), "--weights", str(weights)]
    assert main(["imagenet", *flags, "--address", "none"]) == 0
    table = capsys.readouterr().out
    assert {line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")} == {
        "none (ImageNet's weights)",
        "shifting",
    }
    start = open_initialization(out / "runs" / "scratch-k2-seed0").phi()
    assert torch.equal(
        start["layer1.0.conv1.weight"], build_model(ModelConfig(name="resnet18"), 2, seed=7).layer1[0].conv1.weight
    )
    moved = open_initialization(out / "runs" / "shifting-k2-seed0").phi()
    assert not torch.equal(start["layer1.0.conv1.weight"], moved["layer1.0.conv1.weight"])

    rows = pq.read_table(out / "imagenet_results.parquet").to_pylist()
    assert {row["train_size"] for row in rows} == {4, 8}
    assert len(rows) == 2 * 2  # methods, sizes
    gains = json.loads((out / "imagenet_summary.json").read_text())["gain_over_imagenet"]
    assert set(gains) == {TARGETS[0], "mean"}
    assert set(gains["mean"]) == {"shifting"}
    for name in ("gains", "losses"):
        with Image.open(out / f"imagenet_{name}.png") as picture:
            assert min(picture.size) > 250
    record = json.loads((out / "cells" / "train-shifting-k2-seed0.json").read_text())
    assert f"--weights {weights}" in record["command"]
    assert "imagenet_gains.png" in (out / "imagenet_report.md").read_text()


def test_gains_are_over_the_plain_weights_at_the_same_size(tmp_path):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False))
    suite = load_suite(str(tmp_path / "suite.yaml"), seeds=2)
    accuracy = {"scratch": 20, "mtl": 15, "reptile": 20, "shifting": 50}
    rows = [
        {"method": method, "inner_steps": 2, "seed": seed, "target": target, "train_size": size, "final": True}
        | {"accuracy": value / size + 10 * seed + (target == "food101"), "spent": 8, "test_seed": seed, "steps": 2}
        for method, value in accuracy.items()
        for seed in (0, 1)
        for target in TARGETS
        for size in (4, 8)
    ]
    gains = gains_over_base(Report(suite, Stages({}, {}, {}), rows), "mean")
    assert gains == {
        "mtl": {4: (-1.25, 0), 8: (-0.625, 0)},
        "reptile": {4: (0, 0), 8: (0, 0)},
        "shifting": {4: (7.5, 0), 8: (3.75, 0)},
    }


def test_a_panel_shows_what_every_method_gains_at_every_size():
    of_mtl, of_shifting = {8: (1.0, 0.25), 4: (-2.0, float("nan"))}, {4: (3.0, 0.5), 8: (5.0, 1.0)}
    figure = plot_gains({"food101": {"mtl": of_mtl, "shifting": of_shifting}, "mean": {"mtl": of_mtl}})
    first, second = figure.axes
    assert [first.get_title(), second.get_title()] == ["food101", "mean"]
    mtl, shifting = first.containers
    assert mtl.lines[0].get_ydata().tolist() == [-2, 1]
    assert shifting.lines[0].get_ydata().tolist() == [3, 5]
    (ends,) = (lines.get_segments() for lines in shifting.lines[2])
    assert [segment[:, 1].tolist() for segment in ends] == [[2.5, 3.5], [4, 6]]
    left, right = mtl.lines[0].get_xdata(), shifting.lines[0].get_xdata()
    assert (left < [4, 8]).all()  # beside each other, around the size that both have
    assert (right > [4, 8]).all()
    np.testing.assert_allclose(left * right, [16, 64])
    assert [text.get_text() for text in first.get_xticklabels()] == ["4", "8"]
    plt.close(figure)


@pytest.mark.parametrize(
    ("changes", "flags", "sentence"),
    [
        ({}, ["--weights", "none.pt"], "there is no weights file"),
        ({"methods": {"mtl": {"beta": [1, 2]}}}, [], "needs the method 'scratch'"),
        ({"targets": ["dtd"]}, [], "run python -m rayctsl.data prepare dtd"),
    ],
)
def test_wrong_input(changes, flags, sentence, root, tmp_path, capsys):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({**SUITE, "lengths": {}, **changes}, sort_keys=False))
    words = ["imagenet", "--suite", str(tmp_path / "suite.yaml"), "--out", str(tmp_path), "--data-root", str(root)]
    assert main([*words, *flags]) == 2
    assert sentence in capsys.readouterr().err
