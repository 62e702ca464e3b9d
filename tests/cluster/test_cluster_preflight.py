"""A node that has other code, packages or data is named before anything is computed."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray

from rayctsl.cluster import preflight, team
from rayctsl.cluster.engine import RayEngine
from rayctsl.config import Config, build_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.learning.problem import Problem
from rayctsl.learning.surroundings import settled

pytestmark = pytest.mark.ray
NODE = r"node \d+\.\d+\.\d+\.\d+ differs from the driver: "


def make(root: Path, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for split in ("train", "test"):
        images = random.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
        info = SplitInfo("mine", split, (8, 8, 1), tuple("abc"))
        write_split(root / "mine" / f"{split}.arrow", images, np.arange(12) % 3, info)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    make(tmp_path)
    data = {"tasks": ["mine"], "root": str(tmp_path), "batch_size": 4}
    raw = {"data": data, "model": {"name": "resnet8", "width": 4}, "topology": {"workers": 1}}
    return settled(build_config(raw))


def start(config: Config) -> None:
    engine = RayEngine(Problem.of(config))
    try:
        engine.start(None)
    finally:
        engine.close()


def test_every_difference_of_a_node_is_in_one_sentence(kept_actors, config, tmp_path, monkeypatch):
    start(config)
    make(tmp_path, seed=1)
    here = preflight.surroundings()
    monkeypatch.setattr(preflight, "surroundings", lambda: replace(here, torch="1.0.0"))
    torch_differs = rf"torch {here.torch}, not 1\.0\.0; "
    with pytest.raises(ValueError, match=NODE + torch_differs + r"the images of 'mine' in .* are not those"):
        start(config)


def test_data_that_a_node_does_not_have_is_named_with_the_node(kept_actors, config, tmp_path):
    elsewhere = config.data.model_copy(update={"root": str(tmp_path / "elsewhere")})
    with pytest.raises(ValueError, match=NODE + r"dataset 'mine' is unknown"):
        start(config.model_copy(update={"data": elsewhere}))


@pytest.mark.long
def test_a_node_without_the_code_is_told_at_once(ray_cluster, config, monkeypatch):
    only_here = types.ModuleType("only_here")
    exec("class TaskLearner:\n    def place(self): pass\n", only_here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    monkeypatch.setattr(team, "TaskLearner", ray.remote(only_here.TaskLearner))
    with pytest.raises(ValueError, match=r"a node of the cluster cannot import module only_here: install the same"):
        start(config)
