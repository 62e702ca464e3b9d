"""The Dockerfile and the two rehearsals: what can be said without Docker and without starting anything."""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from k8s_checks.manifests import render, values_of

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "k8s" / "Dockerfile"
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "configs", "rayctsl", "serve")


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"k8s_{name}", ROOT / "k8s" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    return load_script("build_rehearsal").instructions(DOCKERFILE, "build")


def test_everything_copied_exists_and_reaches_the_builder(steps: list[tuple[str, str]]) -> None:
    ignore = (ROOT / "k8s" / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    copied = [word for name, rest in steps if name == "COPY" for word in rest.split()[:-1]]
    assert set(copied) == set(allowed) == {*BUILT_FROM, "constraints.txt"}
    assert all((ROOT / name).exists() for name in copied)
    assert not any(fnmatch.fnmatch(".git", pattern) for pattern in allowed)


def test_every_installation_is_pinned(steps: list[tuple[str, str]]) -> None:
    installs = [rest for name, rest in steps if name == "RUN" and "pip install" in rest]
    assert len(installs) == 3
    assert all("--constraint constraints.txt" in line or line == "pip install --no-deps ." for line in installs)
    defaults = {rest.partition("=")[0]: rest.partition("=")[2] for name, rest in steps if name == "ARG"}
    assert defaults == {"TORCH_INDEX": '""'}
    assert "://" not in DOCKERFILE.read_text()  # who builds chooses the index


def test_the_image_has_the_extras_that_the_manifests_need(steps: list[tuple[str, str]]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (line,) = [rest for name, rest in steps if name == "RUN" and "tomllib" in rest]
    named = re.findall(r"extras\['(\w+)'\]", line)
    assert set(named) == {"postgres", "tensorboard", "optuna", "vtab", "timm", "hub"} <= set(extras)


def test_it_runs_as_a_user_without_rights_in_both_variants() -> None:
    text = DOCKERFILE.read_text()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000:1000"]
    assert "useradd --uid 1000 --gid 1000" in text
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert stages[-3:] == [("runtime", "cpu"), ("runtime", "gpu"), ("${VARIANT}", "")]
    assert not re.search(r"^(ADD|.*--mount=type=secret)", text, re.MULTILINE)
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)


def test_dockerfile_sets_only_known_variables() -> None:
    names = re.findall(r"(\w+)=", " ".join(re.findall(r"^ENV (.*)$", DOCKERFILE.read_text(), re.MULTILINE)))
    assert set(names) <= {
        "PATH",
        "PIP_NO_CACHE_DIR",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "PYTHONUNBUFFERED",
        "RAY_USAGE_STATS_ENABLED",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    }


def test_tags_in_dockerfile_and_readme_are_the_manifests(rendered: None) -> None:
    image = next(iter(values_of(render("overlays/local-cpu"), "image")))
    for name in ("Dockerfile", "README.md"):
        assert set(re.findall(r"rayctsl(?:-gpu)?:(\S+ray[\d.]+\d)", (ROOT / "k8s" / name).read_text())) == {
            image.partition(":")[2]
        }


def test_the_rehearsal_moves_every_mount_point(rendered: None, tmp_path: Path) -> None:
    rehearsal = load_script("rehearsal")
    moved = rehearsal.Manifests("local-cpu", tmp_path)
    assert moved.environment["RAYCTSL_STORAGE"] == f"{tmp_path}/artifacts/storage"
    assert (
        moved.place("--database=sqlite:////state/jobs.sqlite3") == f"--database=sqlite:///{tmp_path}/state/jobs.sqlite3"
    )
    assert moved.place("/artifacts-2 x/artifacts /usr/cache") == "/artifacts-2 x/artifacts /usr/cache"
    for name in ("train", "sweep"):
        entry = moved.place(moved.only("RayJob", name)["spec"]["entrypoint"])
        (config,) = re.findall(r"--config (\S+)", entry)
        assert Path(config).is_relative_to(tmp_path)
        assert Path(config).is_file()
        assert Path(entry.split()[1]).read_text() == (ROOT / "k8s/base/scripts/attempt.sh").read_text()
    assert (tmp_path / "etc/rayctsl/sweeps/optuna.yaml").is_file()
