"""The rendered manifests, base and every overlay, and what is needed to judge them."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
KUSTOMIZATIONS = ["base", *sorted(f"overlays/{each.name}" for each in (HERE.parent.parent / "k8s/overlays").iterdir())]


def load(name: str) -> ModuleType:
    """A module beside the tests; they cannot import each other."""
    full_name = f"tests_k8s_{name}"
    if full_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(full_name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full_name])
    return sys.modules[full_name]


@pytest.fixture(scope="session")
def manifests() -> ModuleType:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the manifests cannot be rendered")
    return load("manifests")


@pytest.fixture(scope="session")
def operator_rules() -> ModuleType:
    return load("operator_rules")


@pytest.fixture(scope="session", params=KUSTOMIZATIONS)
def objects(request: pytest.FixtureRequest, manifests: ModuleType) -> list[dict[str, Any]]:
    """The objects of one kustomization after the other."""
    return manifests.render(request.param)


@pytest.fixture(scope="session")
def everything(manifests: ModuleType) -> list[dict[str, Any]]:
    """The overlay with every component."""
    return manifests.render("overlays/production")
