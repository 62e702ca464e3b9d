"""Hubs: names, cards that the Hub's own library reads, and a round trip through its upload and download protocols."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub import ModelCard, constants

import rayctsl
from rayctsl import hub
from rayctsl.commands import predict, pull, push
from rayctsl.config import FinetuneConfig, ModelConfig, load_config
from rayctsl.flat import FlatModule
from rayctsl.jobs.model_card import front_matter
from rayctsl.jobs.training import finetune_seeds
from rayctsl.learning.start import Start
from rayctsl.models import build_model
from rayctsl.registry import Initialization, open_initialization, save_initialization
from rayctsl.storage import Storage
from tests.hub_server import HubServer
from tests.stripes import write_pictures, write_stripes

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # in the Hub's library


@pytest.fixture
def endpoint(monkeypatch, tmp_path):
    """A hub of our own in place of the public one."""
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield server


@pytest.fixture
def made(tmp_path) -> Initialization:
    config = load_config(None, {"model.name": "resnet8", "model.width": 4, "tasks": ["latin", "cub@84"]})
    flat = FlatModule(build_model(config.model, 2, seed=3), "head")
    metrics = {"final_loss": 1.25}
    return save_initialization(
        Storage(tmp_path / "made"), flat.name_backbone(flat.backbone), config, spent={}, metrics=metrics
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf-hub:a/b", ("a/b", None)),
        ("a/b@v1.0", ("a/b", "v1.0")),
        ("hf-hub:a-b/c.d@refs/pr/1", ("a-b/c.d", "refs/pr/1")),
    ],
)
def test_names(text, expected):
    assert hub.parse(text) == expected


@pytest.mark.parametrize("text", ["hf-hub:alone", "hf-hub:a/b/c", "hf-hub:a/b@", "hf-hub:../b c"])
def test_malformed_names_are_refused(text):
    with pytest.raises(ValueError, match="not a repository's name"):
        hub.parse(text)


def test_push_pull_and_load_by_name(endpoint, made, tmp_path, capsys):
    assert push.main([made.path, "hf-hub:me/start"]) == 0
    assert capsys.readouterr().out.strip().startswith(f"{endpoint.url}/me/start/commit/")
    assert set(endpoint.files("me/start")) == {"phi.safetensors", "card.json", "README.md"}
    assert list(endpoint.objects.values()) == [made.phi_bytes()]  # large files go by LFS
    assert set(endpoint.tokens) == {"Bearer hf_secret"}
    loaded = open_initialization(f"hf-hub:me/start@{endpoint.commit('me/start')}")
    assert loaded.card == made.card
    assert pull.main(["me/start", "--out", str(tmp_path / "copy")]) == 0
    assert open_initialization(tmp_path / "copy").phi_bytes() == made.phi_bytes()


def test_a_pull_writes_over_nothing_but_an_earlier_pull(endpoint, made, tmp_path, capsys):
    hub.upload(made.path, "me/start")
    own = tmp_path / "own"
    own.mkdir()
    (own / "README.md").write_text("mine")
    assert pull.main(["me/start", "--out", str(own)]) == 2
    assert f"{own} already has files in it; choose a new or empty folder" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in own.iterdir()] == [("README.md", "mine")]
    (tmp_path / "empty").mkdir()
    for folder in ("new", "empty"):
        assert pull.main(["me/start", "--out", str(tmp_path / folder)]) == 0
    (tmp_path / "new" / "notes.txt").write_text("mine")
    for gone in ("card.json", "phi.safetensors"):  # the second time as after a pull that was killed
        (tmp_path / "new" / gone).unlink()
        assert pull.main(["me/start", "--out", str(tmp_path / "new")]) == 0
        assert open_initialization(tmp_path / "new").phi_bytes() == made.phi_bytes()


def test_the_revision_that_is_asked_for_is_fetched(endpoint, made):
    hub.upload(made.path, "me/start")
    endpoint.asked.clear()
    open_initialization("hf-hub:me/start@v7")
    assert "/api/models/me/start/revision/v7" in {path.partition("?")[0] for path in endpoint.asked}


def test_a_push_to_a_revision_goes_there(endpoint, made):
    hub.upload(made.path, "me/start@v7")
    assert [path for path in endpoint.asked if "/commit/" in path] == ["/api/models/me/start/commit/v7"]


def test_a_repository_is_private_where_that_is_asked_for(endpoint, made):
    assert push.main([made.path, "hf-hub:me/mine", "--private"]) == 0
    assert push.main([made.path, "hf-hub:me/ours"]) == 0
    assert endpoint.private == {"me/mine": True, "me/ours": False}


def test_what_else_lies_in_the_folder_stays_at_home(endpoint, made):
    Storage(made.path).write("keys.env", b"HF_TOKEN=hf_secret")
    hub.upload(made.path, "me/start")
    assert set(endpoint.files("me/start")) == {"phi.safetensors", "card.json", "README.md"}


def test_a_fine_tuned_model_goes_the_same_way(endpoint, tmp_path, capsys):
    recipe = FinetuneConfig(steps=2, seeds=1, batch_size=8)
    start = Start("none", ModelConfig(name="resnet8", width=4))
    finetune_seeds(start, write_stripes(tmp_path / "data"), recipe, save=str(tmp_path / "model"))
    assert push.main([str(tmp_path / "model"), "me/stripes", "--licence", "cc-by-4.0"]) == 0
    assert set(endpoint.files("me/stripes")) == {"model.safetensors", "model.json", "README.md"}
    data = ModelCard(endpoint.files("me/stripes")["README.md"].decode()).data
    card = json.loads((tmp_path / "model/model.json").read_text())
    assert (data.license, data.library_name, data.datasets) == ("cc-by-4.0", "rayctsl", ["stripes"])
    assert [(result.metric_type, result.metric_value) for result in data.eval_results] == [
        ("accuracy", round(card["accuracy"], 4))
    ]
    sized = front_matter(rayctsl.open_model(tmp_path / "model").card.changed(dataset="stripes@48"))
    assert sized["datasets"] == ["stripes"], "hubs know no sizes of ours"
    picture = write_pictures(tmp_path / "pictures", 4) / "rows/000.jpg"
    capsys.readouterr()
    assert predict.main(["hf-hub:me/stripes", str(picture)]) == 0
    assert capsys.readouterr().out.startswith(f"{picture}: ")
    assert pull.main(["me/stripes", "--out", str(tmp_path / "copy")]) == 0
    assert rayctsl.open_model(tmp_path / "copy").card.licence == "cc-by-4.0"
    weights = tmp_path / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert push.main([str(tmp_path / "model"), "me/stripes"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_what_is_damaged_on_the_way_is_not_taken(endpoint, made, tmp_path, capsys):
    hub.upload(made.path, "me/start")
    endpoint.files("me/start")["phi.safetensors"] = made.phi_bytes()[:-1] + b"x"
    assert pull.main(["me/start", "--out", str(tmp_path / "copy")]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_sentences_for_what_is_not_there(endpoint, tmp_path, capsys):
    assert pull.main(["me/nothing"]) == 2
    assert "the hub has no repository me/nothing" in capsys.readouterr().err
    assert push.main([str(tmp_path), "me/x"]) == 2
    assert "holds no initialization" in capsys.readouterr().err


def test_the_hubs_library_reads_the_card(made):
    data = ModelCard.load(f"{made.path}/README.md").data
    assert (data.library_name, data.license, data.pipeline_tag) == ("rayctsl", "other", "image-classification")
    assert data.datasets == ["latin", "cub"]
    assert [(result.metric_type, result.metric_value) for result in data.eval_results] == [("loss", 1.25)]


def test_into_a_plain_module(made):
    module = build_model(load_config(None, {"model.name": "resnet8", "model.width": 4}).model, 7, seed=9)
    head = module.head.weight.clone()
    made.into(module)
    own = dict(module.named_parameters())
    assert all(torch.equal(own[name], value) for name, value in made.phi().items())
    assert torch.equal(module.head.weight, head)


@pytest.mark.parametrize(
    ("name", "width", "sentence"), [("resnet8", 8, "another shape of"), ("resnet20", 4, "nothing for head, stage1.1")]
)
def test_another_network_is_refused(made, name, width, sentence):
    module = build_model(load_config(None, {"model.name": name, "model.width": width}).model, 7, seed=9)
    with pytest.raises(ValueError, match=sentence):
        made.into(module)


def test_a_network_with_a_layer_more_is_refused(made):
    module = build_model(load_config(None, {"model.name": "resnet8", "model.width": 4}).model, 7, seed=9)
    module.more = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="nothing for head, more"):
        made.into(module)
