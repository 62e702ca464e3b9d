"""README and tutorial, walked block by block in a fresh clone with an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.docs.walk import LEFT_OUT, SHAPES, commands
from tests.stripes import write_pictures

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", SHAPES)
def test_what_the_walk_expects_is_still_printed(page: str) -> None:
    printed = list(commands(ROOT / page))
    assert set(SHAPES[page]) <= set(printed)


def test_what_the_walk_leaves_out_is_still_printed() -> None:
    printed = [command for page in SHAPES for command in commands(ROOT / page)]
    assert [start for start in LEFT_OUT if not any(command.startswith(start) for command in printed)] == []


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has: a clone, an empty home with a folder of pictures, and what `make .venv` makes."""
    home = tmp_path_factory.mktemp("home")
    clone = home / "rayctsl"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    python = Path(sys.base_prefix) / "bin" / "python3.11"
    subprocess.run(["make", ".venv", f"PYTHON={python}"], cwd=clone, check=True)
    write_pictures(home / "pictures" / "flowers", count=40, side=32)
    shutil.copytree(home / "pictures" / "flowers", clone / "pictures")
    return clone


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", SHAPES)
def test_walk(clone: Path, page: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "OMP"))}
    short = tempfile.mkdtemp(prefix="walk-")  # Ray's sockets have short names
    environment = {**kept, "HOME": str(clone.parent), "RAY_TMPDIR": short}
    # In a network of its own, where nobody else has the ports that the page prints.
    apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    alone = apart if subprocess.run([*apart, "true"], check=False).returncode == 0 else []
    walk = [*alone, str(clone / ".venv/bin/python"), "-m", "tests.docs.walk", page]
    done = subprocess.run(walk, cwd=clone, env=environment, check=False)
    assert done.returncode == 0
