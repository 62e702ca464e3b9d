"""Initializations: the same bytes out as in, found by path and id, refused when damaged."""

from __future__ import annotations

import json

import pytest
import torch

import rayctsl
from rayctsl.card import Card, front_matter, readme
from rayctsl.config import ModelConfig, load_config
from rayctsl.contract import read_contract
from rayctsl.flat import FlatModule
from rayctsl.models import build_model
from rayctsl.registry import (
    Initialization,
    list_initializations,
    open_initialization,
    publish,
    save_initialization,
    storage_root,
)
from rayctsl.storage import Storage

CONFIG = load_config(None, {"model.name": "resnet8", "model.width": 4, "inner_steps": 10, "trajectories": 2})


@pytest.fixture
def phi():
    flat = FlatModule(build_model(ModelConfig(name="resnet8", width=4), 7, seed=3), "head")
    return flat.name_backbone(torch.randn(flat.size, generator=torch.Generator().manual_seed(0)))


@pytest.fixture
def saved(tmp_path, phi):
    storage = Storage(tmp_path / "run" / "initialization")
    return save_initialization(storage, phi, CONFIG, spent={"inner": 160}, metrics={"final_loss": 1.0})


def test_the_storage_that_is_named_comes_before_the_environments(monkeypatch):
    monkeypatch.setenv("RAYCTSL_STORAGE", "of the environment")
    assert storage_root("named") == "named"
    assert storage_root() == "of the environment"
    monkeypatch.delenv("RAYCTSL_STORAGE")
    assert storage_root().endswith("/.cache/rayctsl/storage")


def test_saved_and_loaded_phi_is_the_same_to_the_byte(saved, phi, tmp_path):
    again = open_initialization(tmp_path / "run")
    assert again.card == saved.card
    assert again.phi_bytes() == saved.storage.read("phi.safetensors")
    for name, value in again.phi().items():
        assert torch.equal(value, phi[name])
    module = rayctsl.load_initialization(str(tmp_path / "run" / "initialization"), num_classes=12)
    parameters = dict(module.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in phi.items())
    assert parameters["head.weight"].shape[0] == 12
    assert set(parameters) - set(phi) == {"head.weight", "head.bias"}


def test_saving_twice_gives_the_same_checksum(saved, phi, tmp_path):
    other = save_initialization(Storage(tmp_path / "other"), phi, CONFIG, spent={}, metrics={})
    assert (other.id, other.card.sha256) == (saved.id, saved.card.sha256)


def test_the_card_says_everything(saved):
    wanted = {"id", "model", "method", "alpha", "beta", "inner_steps", "trajectories", "tasks", "spent", "seed",
              "versions", "sha256", "metrics", "created"}  # fmt: skip
    assert wanted <= saved.card.to_json().keys()
    card = saved.card
    assert (card.inner_steps, card.trajectories, card.spent) == (10, 2, {"inner": 160})
    assert card.sha256 in saved.storage.read("README.md").decode()


def test_the_card_tells_what_was_computed_where_and_how_much_of_it(tmp_path):
    phi = {"body.weight": torch.ones(2, 3), "body.bias": torch.ones(2)}
    changes = {"seed": 5, "alpha": 0.25, "beta": 0.5, "finetune.steps": 7, "tasks": ["latin", "shapes"]}
    config, where = load_config(None, changes), "1 thread of Z80"
    card = save_initialization(Storage(tmp_path), phi, config, spent={}, metrics={}, computed_on=where).card
    assert card.num_parameters == 2 * 3 + 2
    assert card.size == (tmp_path / "phi.safetensors").stat().st_size
    assert (card.seed, card.alpha, card.beta, card.tasks) == (5, 0.25, 0.5, ("latin", "shapes"))
    assert card.finetune.steps == 7
    assert card.versions["processor"] == where


def test_an_initialization_is_loaded_without_the_weights_that_its_training_began_with(phi, tmp_path):
    config = CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"weights": "gone.pth"})})
    save_initialization(Storage(tmp_path), phi, config, spent={}, metrics={})
    assert rayctsl.load_initialization(tmp_path, num_classes=3).head.out_features == 3


def test_a_hub_is_told_licence_loss_and_accuracy(saved):
    card = saved.card.changed(licence="mit", metrics={"final_loss": 1.5, "validation_accuracy": 40.5})
    front = front_matter(card)
    assert front["license"] == "mit"
    (found,) = [result for model in front["model-index"] for result in model["results"]]
    assert found["metrics"] == [{"type": "loss", "value": 1.5}, {"type": "accuracy", "value": 40.5}]


@pytest.mark.parametrize("name", ["phi.safetensors", "README.md"])
def test_there_is_no_card_where_another_file_could_not_be_written(phi, tmp_path, name):
    (tmp_path / name).mkdir()  # in the file's place
    with pytest.raises(OSError, match=name):
        save_initialization(Storage(tmp_path), phi, CONFIG, spent={}, metrics={})
    with pytest.raises(ValueError, match="holds no initialization"):
        open_initialization(tmp_path)


def test_inner_gradients_are_told_without_the_others(saved):
    text = readme(saved.card.changed(spent={"inner": 1600, "held_out": 40, "hessian": 7}))
    assert "| inner gradients spent, all tasks | 1,600 |" in text


def test_found_by_id_in_run_folders_and_published(saved, tmp_path):
    root = str(tmp_path)
    (tmp_path / "notes.txt").write_text("a file among the run folders")
    assert [item.id for item in list_initializations(root)] == [saved.id]
    assert open_initialization(saved.id, root).card == saved.card
    shelf = str(tmp_path / "shelf")
    published = publish(saved, shelf)
    assert published.phi_bytes() == saved.phi_bytes()
    assert open_initialization(saved.id, shelf).storage.root.endswith(f"initializations/{saved.id}")
    with pytest.raises(ValueError, match=f"did you mean '{saved.id}'"):
        open_initialization(saved.id[:-1], root)


def test_the_newest_comes_first(saved, tmp_path):
    shelf = str(tmp_path / "shelf")
    days = {f"made-on-day-{day}": f"2026-01-0{day}T00:00:00+00:00" for day in (2, 3, 1)}
    for name, created in days.items():
        publish(Initialization(saved.storage, saved.card.changed(id=name, created=created)), shelf)
    assert [item.id for item in list_initializations(shelf)] == ["made-on-day-3", "made-on-day-2", "made-on-day-1"]


@pytest.mark.parametrize("damage", ["truncate", "alter", "pickle", "missing"])
def test_damaged_weights_are_refused_with_one_line(saved, tmp_path, damage):
    path = tmp_path / "run" / "initialization" / "phi.safetensors"
    data = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(data[:-10])
    elif damage == "alter":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "pickle":
        torch.save({"x": 1}, path)
    else:
        path.unlink()
    with pytest.raises(ValueError, match=saved.id) as caught:
        rayctsl.load_initialization(str(tmp_path / "run"), 10)
    assert "\n" not in str(caught.value)


def test_weights_of_another_model_are_refused(saved, tmp_path):
    with pytest.raises(ValueError, match="another model"):
        rayctsl.load_initialization(
            str(tmp_path / "run"), 10, model=lambda n: build_model(ModelConfig(name="resnet8", width=8), n)
        )


def test_not_an_initialization(tmp_path):
    with pytest.raises(ValueError, match="holds no initialization"):
        open_initialization(tmp_path)
    with pytest.raises(ValueError, match="neither a folder"):
        open_initialization("../no/such")
    (tmp_path / "card.json").write_text(json.dumps({"id": "../x", "sha256": "", "model": {}, "created": ""}))
    with pytest.raises(ValueError, match="malformed id"):
        open_initialization(tmp_path)


@pytest.mark.parametrize("created", ["", "soon", "2026-11-19T25:00:00+00:00", "2026-11-19 or so"])
def test_a_card_of_no_time_is_damaged(saved, created):
    with pytest.raises(ValueError, match="created"):
        read_contract(Card, {**saved.card.to_json(), "created": created}, "the card")
