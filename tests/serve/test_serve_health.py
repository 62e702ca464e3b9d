"""What the probes say, and the bound of event streams, on an application without a server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from serve.app import create_app
from serve.bench.instance import make_dataset, make_initialization
from serve.datasets import DatasetCatalog
from serve.metrics import ServiceMetrics
from serve.routes.events import pause
from serve.service import Service
from serve.settings import Settings

Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    settings = Settings(
        storage=str(tmp_path / "storage"), data_root=str(tmp_path / "data"), address="http://127.0.0.1:1", max_streams=3
    )
    made = create_app(settings)
    monkeypatch.setattr(Service, "dispatches", True)
    yield made
    inside: Service = made.state.service
    inside.store.close()
    inside.access.close()
    inside.house.close()


def test_readiness_tells_why_jobs_cannot_run(inside: Service, ask: Ask) -> None:
    inside.pool.up = True
    assert ask("GET", "/readyz").json() == {"status": "ok", "ray": "up", "dispatcher": "running", "reasons": []}
    inside.pool.mute = "workers show no sign of life"
    inside.pool.up = False
    told = ask("GET", "/readyz").json()
    assert (told["status"], told["ray"]) == ("degraded", "down")
    assert told["reasons"] == ["Ray does not answer: jobs wait.", "workers show no sign of life"]


@pytest.mark.parametrize("full", ["storage", "storage/service", ""])
def test_either_disk_may_be_full(full: str, inside: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inside.settings.folder == tmp_path / "storage/service"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**12 * (folder != tmp_path / full)))
    assert inside.is_full() is bool(full)


def test_one_stream_too_many_is_refused(inside: Service, ask: Ask) -> None:
    job = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 3}).json()["id"]
    ask("POST", f"/finetune/{job}/cancel")
    inside.streams = 2
    assert ask("GET", f"/finetune/{job}/events").status_code == 200
    assert inside.streams == 2
    inside.streams = 3
    refused = ask("GET", f"/finetune/{job}/events")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "15")


def test_many_streams_look_less_often_each() -> None:
    assert pause(1) == 0.3
    assert all(streams / pause(streams) < 60.001 for streams in range(1, 1000))


def test_a_database_that_hangs_keeps_nobody_waiting(inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may ask is known in memory: the loop that answers everybody never waits for the database."""

    def hang() -> None:
        pytest.fail("the database was asked in the loop")

    monkeypatch.setattr(inside.keys, "_engine", SimpleNamespace(connect=hang, begin=hang))
    assert ask("GET", "/initializations").status_code == 200


def test_a_dataset_s_picture_is_of_the_dataset_that_is_there_now(tmp_path: Path) -> None:
    catalog = DatasetCatalog(str(tmp_path))
    make_dataset(tmp_path)
    first = catalog.thumbnail("stripes")
    assert first == catalog.thumbnail("stripes")
    shutil.rmtree(tmp_path / "stripes")
    make_dataset(tmp_path, num_train=2)
    os.utime(tmp_path / "stripes" / "train.arrow", ns=(1, 1))
    catalog.look_again()
    second = catalog.thumbnail("stripes")
    assert first is not None
    assert second is not None
    assert second != first


def test_a_status_that_no_job_has_any_more_is_none() -> None:
    metrics = ServiceMetrics()
    for counts in ({"queued": 2, "running": 1}, {"running": 1}):
        metrics.show_jobs(counts)
    shown = metrics.render().decode()
    assert 'rayctsl_finetune_jobs{status="queued"} 0.0' in shown
    assert 'rayctsl_finetune_jobs{status="running"} 1.0' in shown
