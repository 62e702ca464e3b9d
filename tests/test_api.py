"""The front door: the public functions, own models, ids and engines."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import rayctsl
from rayctsl.card import OwnModel
from rayctsl.config import ModelConfig
from rayctsl.data.library import open_dataset
from tests.stripes import write_stripes

TINY = {"tasks": ["latin", "shapes"], "model.width": 4, "inner_steps": 2, "trajectories": 1, "batch_size": 8}


class Network(nn.Module):
    """An ordinary network for colour images; its head is made first, and counts on three channels."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.out = nn.Linear(4, num_classes)
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.features(images))


@pytest.fixture
def config(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rayctsl.Config:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYCTSL_STORAGE", str(tmp_path / "storage"))
    return rayctsl.load_config("configs/demo.yaml", TINY)


def test_the_packages_example_runs_as_printed(config: rayctsl.Config) -> None:
    assert doctest.testmod(rayctsl) == doctest.TestResults(failed=0, attempted=6)


@pytest.mark.parametrize("module", ["rayctsl.train", "rayctsl.finetune", "rayctsl.commands.train", "rayctsl.commands"])
def test_functions_stay_functions_whatever_is_imported(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, _, name = module.rpartition(".")
    importlib.import_module(module)
    # What is there is put back in the end, with all that others have imported below it.
    monkeypatch.setattr(sys.modules[package], name, getattr(sys.modules[package], name))
    monkeypatch.delitem(sys.modules, module)
    importlib.import_module(module)
    assert rayctsl.train.__module__ == rayctsl.finetune.__module__ == "rayctsl.api"


def test_what_train_returns_is_loaded_by_id_by_path_and_as_itself(config: rayctsl.Config, tmp_path: Path) -> None:
    elsewhere = rayctsl.train(config, engine="local", run_dir=tmp_path / "far" / "away")
    here = rayctsl.train(config.model_copy(update={"seed": 1}), engine="local")
    kept = rayctsl.load_config(tmp_path / "far" / "away" / "config.yaml").data
    assert kept.checksums == {name: open_dataset(name).checksum for name in ("latin", "shapes")}
    assert kept.root is not None
    assert Path(kept.root).is_absolute(), "for whoever resumes it from another folder"
    assert Path(here.path).parts[-3] == "runs"
    for known in (here.id, here.path, here, elsewhere.id, elsewhere.path):
        assert rayctsl.load_initialization(known, num_classes=3)(torch.zeros(1, 1, 8, 8)).shape == (1, 3)


def test_a_fresh_head_is_that_of_its_seed(config: rayctsl.Config) -> None:
    trained = rayctsl.train(config, engine="local")
    first, again, other = (rayctsl.load_initialization(trained, 3, seed=seed).head.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_another_program_finds_an_id_in_runs(config: rayctsl.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = rayctsl.train(config, engine="local")
    monkeypatch.setattr("rayctsl.api._trained", {})
    assert rayctsl.load_initialization(trained.id, num_classes=2).head.out_features == 2


def test_an_own_model_gets_three_channels_is_seeded_and_is_named_in_the_card(config: rayctsl.Config) -> None:
    assert {open_dataset(name).train.info.shape[2] for name in config.data.tasks} == {1, 3}
    first, again = (rayctsl.train(config, model=Network, head="out", engine="local", run_dir=d) for d in "ab")
    reordered = config.model_copy(
        update={"data": config.data.model_copy(update={"tasks": config.data.tasks[::-1]}), "trajectories": 1}
    )
    assert first.card.sha256 == again.card.sha256
    assert isinstance(first.card.model, OwnModel)
    assert first.card.model.class_name.endswith("test_api.Network")
    assert "own" in first.id
    start = [_first_phi(c, run) for c, run in ((config, "c"), (reordered, "d"))]
    assert start[0] == start[1]


def _first_phi(config: rayctsl.Config, run_dir: str) -> str:
    """phi before the first step, which must not depend on which task comes first."""
    nothing = rayctsl.load_config(None, {**config.model_dump(mode="json"), "method": {"name": "scratch"}})
    return rayctsl.train(nothing, model=Network, head="out", engine="local", run_dir=run_dir).card.sha256


class Grey(Network):
    """Takes images of one channel."""

    def __init__(self, num_classes: int):
        super().__init__(num_classes)
        self.features[0] = nn.Conv2d(1, self.features[0].out_channels, 3)


def test_an_own_model_of_one_channel_is_given_one(config: rayctsl.Config) -> None:
    grey = config.model_copy(update={"data": config.data.model_copy(update={"channels": 1})})
    trained = rayctsl.train(grey, model=Grey, head="out", engine="local", run_dir="grey")
    assert trained.phi()["features.0.weight"].shape[1] == 1
    recipe = config.finetune.model_copy(update={"steps": 1, "seeds": 1, "train_size": 8})
    assert rayctsl.finetune(trained, "shapes", config=recipe, model=Grey, head="out").accuracies


def test_an_own_model_is_loaded_with_its_class_and_refused_without(config: rayctsl.Config) -> None:
    trained = rayctsl.train(config, model=Network, head="out", engine="local")
    module = rayctsl.load_initialization(trained.id, num_classes=5, model=Network, head="out")
    assert torch.equal(module.features[0].weight, trained.phi()["features.0.weight"])
    with pytest.raises(ValueError, match=r"own model .*Network: pass it"):
        rayctsl.load_initialization(trained, num_classes=5)
    with pytest.raises(ValueError, match=r"Network has none of 'head', 'fc', 'classifier'; .*head='out'"):
        rayctsl.train(config, model=Network, engine="local", run_dir="refused")
    assert not Path("refused").exists()


def test_a_cards_recipe_is_taken_unless_another_is_given(config: rayctsl.Config) -> None:
    recipe = config.finetune.model_copy(update={"steps": 1, "seeds": 1, "train_size": 8})
    trained = rayctsl.train(config.model_copy(update={"finetune": recipe}), engine="local", run_dir="recipe")
    assert rayctsl.finetune(trained, "latin").recipe == recipe
    other = recipe.model_copy(update={"steps": 2})
    assert rayctsl.finetune(trained, "latin", config=other).recipe == other


def test_an_own_model_fine_tunes_on_grey_images(config: rayctsl.Config) -> None:
    recipe = config.finetune.model_copy(update={"steps": 1, "seeds": 1, "train_size": 8})
    result = rayctsl.finetune(None, "latin", config=recipe, model=Network, head="out")
    assert len(result.accuracies) == 1


def test_a_run_with_an_own_model_is_resumed_from_python_and_not_by_the_command(config: rayctsl.Config, capsys) -> None:
    from rayctsl.commands.train import main

    whole = rayctsl.train(config, model=Network, head="out", engine="local", run_dir="run")
    again = rayctsl.train(resume="run", model=Network, head="out", engine="local")
    assert again.card.sha256 == whole.card.sha256
    capsys.readouterr()
    assert main(["--resume", "run"]) == 2
    said = capsys.readouterr().err
    assert "test_api.Network is your own model" in said
    assert said.count("\n") == 1
    with pytest.raises(ValueError, match="leave out config and run_dir"):
        rayctsl.train(config, resume="run")


def test_two_tasks_may_share_a_dataset(data_root, tmp_path):
    stripes = write_stripes(tmp_path)
    config = rayctsl.load_config(
        None, {"model.name": "resnet8", "model.width": 4, "inner_steps": 2, "trajectories": 1, "batch_size": 8}
    )
    made = rayctsl.train(config, tasks={"one": stripes, "two": stripes}, run_dir=tmp_path / "run", engine="local")
    assert made.card.tasks == ("one", "two")


class OwnTask:
    """A task of one's own that is no dataset, with a network of its own."""

    name = "mine"

    def build_module(self) -> nn.Module:
        return Network(2)

    def head_name(self, module: nn.Module) -> str:
        return "out"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> torch.Tensor:
        return module(torch.ones(1, 3, 5, 5)).square().sum()


def test_the_card_of_an_own_task_names_the_network_that_it_builds(config: rayctsl.Config) -> None:
    made = rayctsl.train(config, tasks={"mine": OwnTask()}, run_dir="mine", engine="local")
    assert made.card.own_class is not None
    assert made.card.own_class.endswith("test_api.Network")
    assert made.card.tasks == ("mine",)


def test_random_weights_are_of_the_model_that_is_asked_for_and_trained_as_long_as_there_is_time(
    config: rayctsl.Config,
) -> None:
    recipe = config.finetune.model_copy(update={"steps": 50, "seeds": 1, "train_size": 8})
    model = ModelConfig(name="resnet8", width=4)
    made = rayctsl.finetune(None, "latin", config=recipe, random_model=model, time_limit=1e-9, save="model")
    assert made.steps == 1
    assert rayctsl.open_model("model").card.model == model
