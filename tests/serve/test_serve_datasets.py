"""The datasets of a data root as the service knows them: damaged ones hide no others, and what is gone is forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from rayctsl.data.library import open_dataset
from rayctsl.data.local_root import Description
from serve.bench.instance import DATASET, make_dataset
from serve.datasets import DatasetCatalog, stored_name
from serve.inbox import Upload
from serve.keys import Caller
from serve.problems import HttpProblem
from serve.routes import datasets
from serve.settings import Settings
from tests.serve.applications import opened

Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    with opened(
        Settings(storage=str(tmp_path / "storage"), data_root=str(tmp_path / "data"), address="http://127.0.0.1:1")
    ) as made:
        yield made


def test_ones_own_dataset_takes_the_place_of_everybodys_of_that_name(
    application: FastAPI, ask: Ask, tmp_path: Path
) -> None:
    inside = application.state.service
    mine, yours = (inside.keys.add(Caller(name, ("read", "finetune"))) for name in ("mine", "yours"))
    stored = stored_name("plants", "mine")
    shutil.copytree(tmp_path / "data" / DATASET, tmp_path / "data" / stored)
    inside.uploads.inbox.write(Upload(name="plants", stored=stored, owner="mine", status="ready"))
    sources = [
        [each["source"] for each in ask("GET", "/datasets", key).json()["data"] if each["name"] == "plants"]
        for key in (mine, yours)
    ]
    assert sources == [["imported"], ["embedded"]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a service's datasets are looked up by."""
    now = [1000.0]
    monkeypatch.setattr("serve.datasets.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_damaged_dataset_hides_no_other(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    for split in ("train", "test"):
        (tmp_path / "aaa").mkdir(exist_ok=True)
        (tmp_path / "aaa" / f"{split}.arrow").write_bytes(b"not arrow")
    known = DatasetCatalog(str(tmp_path)).all()
    assert known[DATASET].prepared
    assert "aaa" not in known


def test_what_can_be_used_now_is_listed_first(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    known = DatasetCatalog(str(tmp_path)).all()
    ready = [name for name, dataset in known.items() if dataset.prepared]
    assert DATASET in ready
    assert list(known) == sorted(ready) + sorted(known.keys() - ready)


def test_a_strangers_dataset_is_not_what_somebody_may_have_meant(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    (tmp_path / DATASET).rename(tmp_path / stored_name("my_summer_holidays", "stranger"))
    catalog = DatasetCatalog(str(tmp_path))
    with pytest.raises(HttpProblem, match="'my_summer_holidayz' is unknown") as caught:
        catalog.require("my_summer_holidayz")
    assert "did you mean" not in caught.value.detail
    with pytest.raises(HttpProblem, match="did you mean 'digits'"):
        catalog.require("digitz")


def test_pictures_of_datasets_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    catalog = DatasetCatalog(str(tmp_path))
    for number in range(5):
        make_dataset(tmp_path)
        (tmp_path / DATASET).rename(tmp_path / f"guest-{number}")
        catalog.look_again()
        assert catalog.thumbnail(f"guest-{number}")
        shutil.rmtree(tmp_path / f"guest-{number}")
    catalog.look_again()
    catalog.all()
    assert catalog._thumbnails == {}


def test_a_dataset_that_is_there_is_not_sent_anew_over_itself(application: FastAPI, ask: Ask) -> None:
    for own in (False, True):
        if own:
            application.state.service.uploads.inbox.write(Upload(name=DATASET, stored=DATASET, status="ready"))
        refused = ask("POST", f"/datasets?name={DATASET}", content=b"x")
        assert (refused.status_code, refused.json()["type"]) == (409, "name-taken")


def test_an_empty_request_leaves_no_upload(application: FastAPI, ask: Ask) -> None:
    assert ask("POST", "/datasets?name=mine", content=b"").status_code == 422
    assert ask("GET", "/datasets/mine").status_code == 404
    assert list(application.state.service.uploads.inbox.folder.iterdir()) == []


def test_only_so_many_sheets_are_kept(
    application: FastAPI, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "SHEETS", 3)
    for number in range(5):
        make_dataset(tmp_path / "data", num_train=48 + 3 * number)
        application.state.service.datasets.look_again()
        first, second = (ask("GET", f"/datasets/{DATASET}/sheet") for _ in range(2))
        assert first.content.startswith(b"\x89PNG")
        assert first.content == second.content
        kept = {path.name for path in (tmp_path / "storage/service/cache/sheets").iterdir()}
        checksum = open_dataset(DATASET, str(tmp_path / "data")).train.info.checksum
        assert f"{checksum}.png" in kept, "the newest stays"
    assert len(kept) == 3


def test_a_dataset_that_has_just_gone_has_no_sheet(application: FastAPI, ask: Ask, tmp_path: Path) -> None:
    assert ask("GET", f"/datasets/{DATASET}").status_code == 200
    shutil.rmtree(tmp_path / "data" / DATASET)  # the service looks again in a few seconds
    assert ask("GET", f"/datasets/{DATASET}/sheet").status_code == 404
    assert ask("GET", f"/datasets/{DATASET}/thumbnail").status_code in (204, 404)
    assert ask("GET", f"/datasets/{DATASET}").status_code == 404


def test_nothing_is_drawn_for_a_guest_who_wants_to_see_it(application: FastAPI, ask: Ask, tmp_path: Path) -> None:
    for picture in ("sheet", "thumbnail"):
        assert ask("GET", f"/datasets/operators/{picture}").status_code == 204
    assert [path.name for path in (tmp_path / "data").iterdir()] == [DATASET]


def test_a_dataset_that_another_service_has_just_made_can_be_used(tmp_path: Path, clock: list[float]) -> None:
    catalog = DatasetCatalog(str(tmp_path))
    catalog.all()
    make_dataset(tmp_path)
    assert catalog.require(DATASET).prepared


def test_a_misspelt_name_costs_a_look_a_second_at_most(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, looks, prepared = DatasetCatalog(str(tmp_path)), list[float](), DatasetCatalog._prepared

    def counted(catalog: DatasetCatalog) -> Iterator[tuple[str, Description]]:
        looks.append(clock[0])
        return prepared(catalog)

    monkeypatch.setattr(DatasetCatalog, "_prepared", counted)
    for _ in range(40):
        with pytest.raises(HttpProblem, match="'nothing' is unknown"):
            catalog.require("nothing")
        clock[0] += 0.1
    assert 4 <= len(looks) <= 5


def test_a_dataset_is_told_by_the_name_that_its_owner_gave_it(tmp_path: Path) -> None:
    with pytest.raises(HttpProblem) as caught:
        DatasetCatalog(str(tmp_path)).require(stored_name("birds", "lab"))
    assert caught.value.detail == "Dataset 'birds' is unknown; GET /datasets lists all."


def test_a_name_is_taken_or_free_as_soon_as_another_service_has_made_it_so(
    application: FastAPI, ask: Ask, tmp_path: Path, clock: list[float]
) -> None:
    service = application.state.service
    taken = (409, "name-taken")

    def sent(name: str) -> tuple[int, str]:
        answer = ask("POST", f"/datasets?name={name}", content=b"")
        return answer.status_code, answer.json()["type"]

    assert sent(DATASET) == taken
    shutil.rmtree(tmp_path / "data" / DATASET)
    assert sent(DATASET)[0] == 422, "free, and there is nothing in the request"
    make_dataset(tmp_path / "data")
    (tmp_path / "data" / DATASET).rename(tmp_path / "data" / "birds")
    service.uploads.inbox.write(Upload(name="birds", stored="birds", status="ready"))
    assert sent("birds") == taken, "otherwise it would be sent over"
    assert [sent(name) for name in ("digits", "cub")] == [taken, taken], "those that a service always knows"
