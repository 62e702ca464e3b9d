"""Joining a cluster as README says: the token that Ray keeps for this user is found, and what is wrong is one line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rayctsl.cluster import resources
from rayctsl.config import TopologyConfig
from rayctsl.ports import free_ports
from tests.processes import end_those_that_name

JOIN = """
import sys
from rayctsl.cluster.resources import connected
try:
    with connected(sys.argv[1]):
        import ray
        print(int(ray.cluster_resources()["CPU"]), "CPUs")
except ValueError as error:
    print("refused:", error)
"""

MODES = """
from ray._raylet import get_authentication_mode
from rayctsl.cluster import resources
before = get_authentication_mode()
resources._find_token()
print(before, get_authentication_mode())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, and an environment that says nothing of Ray."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("token", "settings", "modes"),
    [
        (False, {}, ["0", "0"]),  # a cluster without tokens, and nobody has one
        (True, {}, ["0", "1"]),  # found, although Ray has read its settings before
        (False, {"RAY_AUTH_TOKEN": "0" * 64}, ["0", "1"]),
        (True, {"RAY_AUTH_MODE": "disabled"}, ["0", "0"]),  # who chose a mode keeps it
    ],
)
def test_the_users_token_is_found(home: Path, token: bool, settings: dict[str, str], modes: list[str]) -> None:
    if token:
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("0" * 64)
    environment = {**os.environ, **settings}
    done = subprocess.run([sys.executable, "-c", MODES], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == modes


@pytest.mark.long
def test_the_readmes_recipe_joins_a_cluster_with_a_token(home: Path) -> None:
    """`ray start --head` after a local run, which has left a token; then `--address auto` with and without it."""
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    short = tempfile.mkdtemp(prefix="ray-")  # Ray's sockets have short names
    environment = {**os.environ, "RAY_TMPDIR": short, "RAY_AUTH_MODE": "token"}
    gcs, dashboard, agent, metrics = map(str, free_ports(4))
    ports = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=3", *ports]
    try:
        subprocess.run([*start, f"--metrics-export-port={metrics}"], env=environment, check=True)
        assert join(short) == "3 CPUs"
        (home / ".ray" / "auth_token").unlink()
        assert join(short).startswith("refused: the Ray cluster at 'auto' wants its token: set RAY_AUTH_MODE=token")
    finally:
        end_those_that_name(short)


def join(ray_folder: str) -> str:
    """The last line of a newcomer's program."""
    environment = {**os.environ, "RAY_TMPDIR": ray_folder}
    done = subprocess.run(
        [sys.executable, "-c", JOIN, "auto"], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert "joining the running Ray cluster" in done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_who_grows_wishes_for_learners_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta-learner has its place: what it asked for may be there once in the whole cluster."""
    monkeypatch.setattr(resources, "placement_group", lambda bundles, strategy: bundles)
    topology = TopologyConfig(cpus_per_learner=2, gpus_per_learner=0, meta_resources={"coordinator": 1})
    assert resources.wish_for(topology, 2) == [{"CPU": 2.0}] * 2
    assert resources.bundles_of(topology, 2) == [{"CPU": 2.0}, {"CPU": 2.0}, {"coordinator": 1.0}]
