"""A storage behind a pyarrow URI: the same files, fetched once into a cache; and jobs that keep their files there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rayctsl.card import PHI
from rayctsl.jobs.job import run_job
from rayctsl.storage import Storage
from serve.bench.instance import make_dataset, make_initialization
from serve.index import InitializationIndex
from serve.keys import NOBODY_IN_PARTICULAR
from serve.problems import HttpProblem
from serve.routes.finetune import build_spec
from serve.schemas import FinetuneRequest
from serve.service import Service
from serve.settings import Settings


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "cache"))
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "bucket")
    return tmp_path


def test_files_of_a_remote_storage_are_fetched_once_and_verified(world: Path) -> None:
    index = InitializationIndex(f"file://{world}/bucket", world / "cache")
    index.refresh()
    (entry,) = index.newest_first

    def read() -> bytes:
        with open(index.open(entry), "rb") as file:
            return os.pread(file.fileno(), 2**24, 0)

    original = next((world / "bucket").glob(f"initializations/*/{PHI}"))
    content = original.read_bytes()
    assert read() == content
    original.unlink()
    assert read() == content
    (kept,) = (world / "cache").rglob(PHI)
    kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # as long as before
    os.utime(kept, ns=(1, 1))
    with pytest.raises(HttpProblem, match="damaged"):
        read()


def test_index_notices_what_changes(world: Path) -> None:
    index = InitializationIndex(str(world / "bucket"), world / "cache")
    index.refresh()
    assert len(index.newest_first) == 1
    second = make_initialization(world / "bucket", 5, "leap")
    index.refresh(force=True)
    assert second.id in index.by_id
    card = Path(second.storage.root) / "card.json"
    card.write_text(json.dumps({**second.card.to_json(), "tasks": ["other"]}))
    os.utime(card, ns=(1, 1))
    index.refresh(force=True)
    assert index.by_id[second.id].card.tasks == ("other",)
    card.unlink()
    index.refresh(force=True)
    assert set(index.by_id) == {index.newest_first[0].id}


def test_job_with_all_its_files_on_a_remote_storage(world: Path) -> None:
    settings = Settings(storage=f"file://{world}/bucket", data_root=str(world / "data"), address="http://127.0.0.1:1")
    service = Service(settings)
    try:
        assert settings.folder.is_relative_to(world / "cache")
        service.index.refresh()
        spec = build_spec(service, FinetuneRequest(dataset="stripes", steps=4, batch_size=8), NOBODY_IN_PARTICULAR)
        job = Storage(settings.storage).inside("jobs/ft-1")
        job.write("spec.json", spec.to_bytes())
        assert run_job(job, 1).status == "succeeded"
        assert (world / "bucket" / "jobs" / "ft-1" / "attempt-1" / "result.json").exists()
    finally:
        service.store.close()
