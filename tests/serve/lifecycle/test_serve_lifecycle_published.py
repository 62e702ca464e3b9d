"""Published models: they outlive their jobs, and the hub's clients find them."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from rayctsl.jobs.files import attempt_folder, job_folder
from rayctsl.storage import Storage
from serve.bench.instance import make_initialization
from serve.jobs.tables import JOBS, open_database
from serve.keys import Caller
from serve.models import PublishedModels
from serve.problems import HttpProblem
from serve.routes.hub import _hub_time
from serve.service import Service
from tests.serve.lifecycle.ended_jobs import Ask, finished


def test_a_published_model_outlives_its_job_as_a_repository(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    made = ask("POST", f"/finetune/{job.id}/publish", json={"name": "bands-v1"})
    assert made.status_code == 201, made.text
    for taken in ("bands-v1", ask("GET", "/initializations/latest").json()["id"]):
        assert ask("POST", f"/finetune/{job.id}/publish", json={"name": taken}).json()["type"] == "name-taken"
    ask("DELETE", f"/finetune/{job.id}")
    (shown,) = ask("GET", "/models").json()["data"]
    assert shown["card"]["class_names"] == ["top", "middle", "bottom"]
    assert (shown["card"]["id"], shown["card"]["dataset"], shown["job"]) == ("bands-v1", "stripes", job.id)
    described = ask("GET", "/api/models/rayctsl/bands-v1").json()
    assert {file["rfilename"] for file in described["siblings"]} == {"model.json", "README.md", "model.safetensors"}
    for question, found in (("", True), ("?search=BANDS", True), ("?search=Stripes", True), ("?search=cats", False)):
        assert ("rayctsl/bands-v1" in [each["id"] for each in ask("GET", f"/api/models{question}").json()]) is found
    weights = ask("GET", "/rayctsl/bands-v1/resolve/main/model.safetensors")
    assert hashlib.sha256(weights.content).hexdigest() == shown["card"]["sha256"]
    assert "pipeline_tag: image-classification" in ask("GET", "/rayctsl/bands-v1/resolve/main/README.md").text
    assert ask("GET", "/rayctsl/bands-v1/resolve/main/published.json").status_code == 404
    assert ask("DELETE", "/models/bands-v1").status_code == 204
    assert ask("GET", "/models/bands-v1").status_code == 404
    assert not (Path(inside.storage.root) / "models" / "bands-v1").exists()


def test_a_model_is_its_owners_to_publish_and_to_take_back(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(update(JOBS).values(owner="mine"))
    mine, yours = (inside.keys.add(Caller(name, ("read", "finetune"))) for name in ("mine", "yours"))
    path = f"/finetune/{job.id}/publish"
    assert ask("POST", path, yours, json={"name": "bands-v1"}).json()["type"] == "not-yours"
    assert ask("POST", path, mine, json={"name": "bands-v1"}).status_code == 201
    assert ask("DELETE", "/models/bands-v1", yours).json()["type"] == "not-yours"
    assert ask("GET", "/models/bands-v1", yours).status_code == 200
    assert ask("DELETE", "/models/bands-v1", mine).status_code == 204


def test_the_newest_model_is_listed_first(inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    job = finished(inside, ask)
    for name, moment in (("b", 200.0), ("c", 300.0), ("a", 100.0)):
        monkeypatch.setattr("serve.models.time", SimpleNamespace(time=lambda moment=moment: moment))
        assert ask("POST", f"/finetune/{job.id}/publish", json={"name": name}).json()["created_at"] == moment
    assert [model["name"] for model in ask("GET", "/models").json()["data"]] == ["c", "b", "a"]


def test_the_hubs_search_finds_more_than_the_first_of_all(ask: Ask, tmp_path: Path) -> None:
    make_initialization(tmp_path / "storage", 1, "reptile")
    for method in ("shifting", "reptile"):
        (found,) = ask("GET", f"/api/models?search={method}&limit=1").json()
        assert method in found["id"]


def test_the_hubs_times_are_universal() -> None:
    assert _hub_time("2026-01-01T02:30:00+02:00") == "2026-01-01T00:30:00.000Z"
    assert _hub_time("long ago") == "1970-01-01T00:00:00.000Z"


def test_a_published_card_has_the_datasets_own_name(inside: Service, ask: Ask) -> None:
    job = finished(inside, ask)
    source = inside.storage.inside(job_folder(job.id)).inside(attempt_folder(1))
    made = inside.models.publish("bands-v1", "mine", job.id, source, "holiday")
    assert (made.card.id, made.card.dataset) == ("bands-v1", "holiday")
    assert inside.models.find("bands-v1") == made
    assert "`holiday`" in inside.storage.read("models/bands-v1/README.md").decode()


@pytest.mark.parametrize("path", ["/models", "/api/models", "/models/going", "/api/models/rayctsl/going"])
def test_a_model_that_is_deleted_while_it_is_read_is_left_out(
    path: str, inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, read = finished(inside, ask), Storage.read
    for name in ("going", "staying"):
        assert ask("POST", f"/finetune/{job.id}/publish", json={"name": name}).status_code == 201

    def read_late(storage: Storage, name: str) -> bytes:
        content = read(storage, name)
        if name == "published.json" and storage.root.endswith("going"):
            inside.models.delete("going")
        return content

    monkeypatch.setattr(Storage, "read", read_late)
    answer = ask("GET", path)
    if path.endswith("going"):
        assert answer.status_code == 404
    else:
        assert answer.status_code == 200
        assert "staying" in answer.text
        assert "going" not in answer.text


def test_a_repositorys_files_are_listed_as_they_are_and_none_stays_open(inside: Service, ask: Ask) -> None:
    name = ask("GET", "/initializations/latest").json()["id"]
    folder = Path(inside.index.by_id[name].initialization.storage.root)
    listed = {file["path"]: file for file in ask("GET", f"/api/models/rayctsl/{name}/tree/main").json()}
    assert {path: file["size"] for path, file in listed.items()} == {
        path.name: path.stat().st_size for path in folder.iterdir()
    }
    assert (
        listed["phi.safetensors"]["lfs"]["oid"] == hashlib.sha256((folder / "phi.safetensors").read_bytes()).hexdigest()
    )
    assert _open_below(folder) == []


def _open_below(folder: Path) -> list[str]:
    """Files that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the listing itself
            found.append(os.readlink(descriptor))
    return [path for path in found if path.startswith(str(folder))]


def test_a_model_whose_files_are_gone_is_the_services_trouble(tmp_path: Path) -> None:
    models = PublishedModels(Storage(tmp_path), tmp_path / "cache")
    with pytest.raises(HttpProblem, match="is missing from the storage") as refused:
        models.publish("bands-v1", "mine", "ft-1", Storage(tmp_path / "gone"), "holiday")
    assert refused.value.status == 503
    assert models.find("bands-v1") is None


def test_a_job_without_a_model_is_not_published(inside: Service, ask: Ask) -> None:
    waiting = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2}).json()["id"]
    assert ask("POST", f"/finetune/{waiting}/publish", json={"name": "x"}).json()["type"] == "no-weights"
    assert ask("POST", f"/finetune/{waiting}/publish", json={"name": "../x"}).status_code == 422
