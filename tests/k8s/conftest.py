"""The rendered manifests, every overlay with its runs, rendered once a session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # k8s_checks

from k8s_checks.manifests import OVERLAYS, render_all, world


@pytest.fixture(scope="session")
def rendered() -> None:
    render_all()


@pytest.fixture(scope="session", params=OVERLAYS)
def objects(request: pytest.FixtureRequest, rendered: None) -> list[dict[str, Any]]:
    """The objects of one overlay and its runs after the other."""
    return world(request.param)


@pytest.fixture(scope="session")
def everything(rendered: None) -> list[dict[str, Any]]:
    """The overlay with every component, and its runs."""
    return world("production")
