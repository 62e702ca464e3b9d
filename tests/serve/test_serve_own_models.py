"""Initializations of models that only their owner's program has: offered for download, never for jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from serve.bench.instance import make_dataset, make_initialization
from serve.settings import Settings
from tests.serve.applications import opened

Ask = Callable[..., httpx.Response]
BODY = {"dataset": "stripes", "steps": 5}


def make_own(storage: Path) -> str:
    """The newest initialization; its id."""
    made = make_initialization(storage, seed=9)
    place = Path(made.storage.root) / "card.json"
    card = json.loads(place.read_text())
    card |= {"model": {"name": "own", "class_name": "lab.Network"}, "created": "2999-01-01T00:00:00+00:00"}
    place.write_text(json.dumps(card))
    return made.id


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    address = "http://127.0.0.1:1"
    settings = Settings(storage=str(tmp_path / "storage"), data_root=str(tmp_path / "data"), address=address)
    with opened(settings) as made:
        yield made


def test_the_newest_that_can_be_built_is_the_default_and_the_other_is_refused_at_once(
    application: FastAPI, ask: Ask, tmp_path: Path
) -> None:
    own = make_own(tmp_path / "storage")
    only = ask("POST", "/finetune", json=BODY)
    assert (only.status_code, only.json()["type"]) == (409, "no-initialization")
    built = make_initialization(tmp_path / "storage").id
    application.state.service.index.refresh(force=True)

    assert ask("GET", "/initializations/latest").json()["id"] == own
    assert ask("POST", "/finetune", json=BODY).json()["initialization"]["id"] == built
    refused = ask("POST", "/finetune", json={**BODY, "initialization": own})
    assert (refused.status_code, refused.json()["type"]) == (409, "own-model")
    assert "lab.Network" in refused.json()["detail"]
    together = ask("POST", "/comparisons", json={"dataset": "stripes", "initializations": [built, own], "steps": 5})
    assert together.json()["type"] == "own-model"
    assert len(ask("GET", "/finetune").json()["data"]) == 1
