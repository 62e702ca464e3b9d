"""A service that keeps jobs, models and datasets for so many days, with one dataset and one initialization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from serve.bench.instance import make_dataset, make_initialization
from serve.settings import Settings
from tests.serve.applications import opened


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    with opened(
        Settings(
            storage=str(tmp_path / "storage"),
            data_root=str(tmp_path / "data"),
            address="http://127.0.0.1:1",
            webhooks="any",
            keep_jobs_days=30,
            keep_models_days=10,
            keep_datasets_days=20,
        )
    ) as made:
        yield made
