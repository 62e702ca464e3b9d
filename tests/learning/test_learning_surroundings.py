"""Code, packages and images: said once when a run begins, and compared wherever it computes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rayctsl.cluster.preflight import differences
from rayctsl.config import Config, build_config
from rayctsl.data.library import open_dataset
from rayctsl.data.roots import root_to_keep
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.surroundings import Surroundings, code_checksum, settled, surroundings
from rayctsl.sweeps.config import build_sweep, trial_config
from rayctsl.sweeps.sweep import with_settled_data


def make(root: Path, seed: int = 0, name: str = "mine") -> None:
    random = np.random.default_rng(seed)
    for split in ("train", "test"):
        images = random.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
        write_split(
            root / name / f"{split}.arrow",
            images,
            np.arange(12) % 3,
            SplitInfo(name, split, (8, 8, 1), tuple("abc")),
        )


def config_of(root: str | None) -> Config:
    return build_config(
        {"data": {"tasks": ["mine"], "root": root, "batch_size": 4}, "model": {"name": "resnet8", "width": 4}}
    )


def test_a_relative_root_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "data")
    for root, environment in (("data", None), (f"file://{tmp_path}/data", None), (None, "data")):
        monkeypatch.setenv("RAYCTSL_DATA", environment or "elsewhere")
        data = settled(config_of(root)).data
        assert data.root == str(tmp_path / "data")
        assert list(data.checksums) == ["mine"]


def test_credentials_of_the_environment_are_not_written_down(monkeypatch):
    monkeypatch.setenv("RAYCTSL_DATA", "s3://me:secret@bucket/data")
    assert root_to_keep(None) is None
    monkeypatch.setenv("RAYCTSL_DATA", "s3://bucket/data")
    assert root_to_keep(None) == "s3://bucket/data"


def test_other_images_are_refused_wherever_they_are_found(tmp_path):
    make(tmp_path / "data")
    config = settled(config_of(str(tmp_path / "data")))
    LocalEngine(Problem.of(config), "cpu")
    make(tmp_path / "data", seed=1)
    with pytest.raises(ValueError, match=r"the images of 'mine' in .*data/mine are not those that the run began with"):
        LocalEngine(Problem.of(config), "cpu")


def test_a_node_says_everything_that_differs(tmp_path):
    make(tmp_path)
    config, here = settled(config_of(str(tmp_path))), surroundings()
    same = vars(here)
    assert differences(same, ["mine"], str(tmp_path), config.data.checksums) == []
    other = {**same, "python": "3.12", "torch": "2.0.0", "rayctsl": "0.0.1 (code 00000000)"}
    found = differences(other, ["mine", "yours"], str(tmp_path), {"mine": "another"})
    assert found[:2] == [f"python {here.python}, not 3.12", f"torch {here.torch}, not 2.0.0"]
    assert found[2] == f"rayctsl {here.rayctsl}, not 0.0.1 (code 00000000)"
    assert found[3].startswith("the images of 'mine'")
    assert found[4].startswith("dataset 'yours' is unknown")


def test_builds_of_one_torch_are_the_same():
    assert "+" not in surroundings().torch
    assert Surroundings("3.11", "2.13.0", "1").differences(Surroundings("3.11", "2.13.0", "1")) == []


def test_the_codes_checksum_follows_every_file(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("one = 1\n")
    first = code_checksum(tmp_path)
    (tmp_path / "room" / "a.txt").write_text("no code")
    assert code_checksum(tmp_path) == first
    os.rename(tmp_path / "room" / "a.py", tmp_path / "room" / "b.py")
    assert code_checksum(tmp_path) != first


def test_the_trials_of_a_sweep_have_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "data")
    base = {"data": {"tasks": ["mine"], "root": "data"}, "inner_steps": 2, "trajectories": 1}
    sweep = build_sweep({"base": base, "search": {"method.beta": {"grid": [0.1, 0.2]}}})
    trial = trial_config(with_settled_data(sweep), {"method.beta": 0.2})
    assert trial.data == settled(trial_config(sweep, {"method.beta": 0.2})).data


def test_a_sweep_over_tasks_has_the_images_of_all_of_them(tmp_path):
    make(tmp_path)
    make(tmp_path, seed=1, name="yours")
    base = {"data": {"tasks": ["mine"], "root": str(tmp_path)}, "inner_steps": 2, "trajectories": 1}
    sweep = build_sweep({"base": base, "search": {"data.tasks": {"grid": [["mine"], ["yours"], ["yours", "mine"]]}}})
    assert set(with_settled_data(sweep).base["data"]["checksums"]) == {"mine", "yours"}


def test_a_datasets_checksum_is_of_both_splits(tmp_path):
    make(tmp_path)
    first = open_dataset("mine", str(tmp_path)).checksum
    train = (tmp_path / "mine" / "train.arrow").read_bytes()
    make(tmp_path, seed=1)
    (tmp_path / "mine" / "train.arrow").write_bytes(train)
    assert open_dataset("mine", str(tmp_path)).checksum != first, "other test images"
