"""The wheel is whole: what is imported is declared, and an installed copy works from another folder."""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest

from rayctsl.ports import free_ports

ROOT = Path(__file__).parents[1]
SOURCES = [path for room in ("rayctsl", "serve") for path in sorted((ROOT / room).rglob("*.py"))]
SOURCES = [path for path in SOURCES if "bench" not in path.parts]  # measurements may need what developers have


def imported_packages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def declared_packages() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    return {_plain(re.split(r"[\[<>=~! ]", line)[0]) for line in [*project["dependencies"], *extras]}


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def test_every_imported_package_is_declared() -> None:
    own = {*sys.stdlib_module_names, "rayctsl", "serve", "__future__"}
    found = {name for path in SOURCES for name in imported_packages(path)} - own
    homes = packages_distributions()
    declared = declared_packages()
    missing = {name for name in found if not declared & {_plain(home) for home in homes.get(name, [name])}}
    assert missing == set()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel; the other packages are this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # What git knows, not what an earlier build left behind.
    names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split("\n")
    for name in names:
        if name.startswith(("rayctsl/", "serve/", "configs/")) or name in PACKAGING:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([*pip, *wheel], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    site = next((folder / "env").glob("lib/python*/site-packages"))
    (file,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", str(folder / "env/bin/python"), "install", "--no-deps", str(file)], check=True)
    dependencies = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "dependencies.pth").write_text(dependencies)  # a plain path: the clone's editable hook is not run
    return folder / "env" / "bin"


PACKAGING = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")


@pytest.fixture
def elsewhere(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where commands run: neither the clone nor the environment."""
    folder = installed.parents[1] / "elsewhere"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    return folder


def run(installed: Path, *command: str) -> str:
    words = [str(installed / command[0]), *command[1:]]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_wheel_has_configs_page_types_and_licence(installed: Path) -> None:
    (wheel,) = installed.parents[1].glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {f"rayctsl/configs/{path.relative_to(ROOT / 'configs')}" for path in (ROOT / "configs").rglob("*.yaml")}
    web = {str(path.relative_to(ROOT)) for path in (ROOT / "serve/web").rglob("*") if path.is_file()}
    assert shipped | web | {"rayctsl/py.typed", "serve/py.typed"} <= names
    assert any(name.endswith("LICENSE") for name in names)


CHECK = """
import rayctsl, rayctsl.config
from rayctsl.experiments.image.suite import load_suite, suite_names
from rayctsl.sweeps.config import load_sweep
from serve.routes.page import WEB
folder = rayctsl.config.shipped_configs()
assert 'site-packages' in rayctsl.__file__ and 'site-packages' in str(folder), (rayctsl.__file__, folder)
assert len([load_suite(name) for name in suite_names()]) >= 4
assert len([load_sweep(path) for path in folder.glob('sweeps/*.yaml')]) >= 4
assert len([rayctsl.load_config(path) for path in folder.glob('paper/*/*.yaml')]) >= 20
config = rayctsl.load_config('configs/demo.yaml', {'inner_steps': 2, 'trajectories': 1, 'tasks': ['latin']})
assert (WEB / 'index.html').is_file()
print(rayctsl.train(config, engine='local').path)
"""


@pytest.mark.slow
def test_an_installed_copy_works_from_another_folder(installed: Path, elsewhere: Path, data_root: Path) -> None:
    printed = run(installed, "python", "-W", "ignore", "-c", CHECK)
    assert Path(printed.splitlines()[-1]).parts[-1] == "initialization"


SHORT = ("inner_steps=2", "trajectories=1", "data.tasks=[latin]", "finetune.steps=1", "tensorboard=false")


@pytest.mark.long
def test_the_demo_runs_from_the_wheel(installed: Path, elsewhere: Path, data_root: Path) -> None:
    changes = [word for change in SHORT for word in ("--set", change)]
    printed = run(installed, "rayctsl", "demo", "--run-dir", "demo", "--seeds", "1", *changes)
    assert printed.splitlines()[-1].startswith("initialization: ")
    assert (elsewhere / "demo/plots/comparison.png").is_file()


@pytest.mark.slow
def test_the_service_answers_from_the_wheel(installed: Path, elsewhere: Path, data_root: Path) -> None:
    (elsewhere / "storage").mkdir()
    port, nobody = free_ports(2)  # without a cluster it serves what needs none
    words = ["serve", "--storage", "storage", "--port", str(port), "--address", f"http://127.0.0.1:{nobody}"]
    with subprocess.Popen([str(installed / "rayctsl"), *words], stderr=subprocess.PIPE, text=True) as service:
        try:
            page, script = (ask(service, f"http://127.0.0.1:{port}{path}") for path in ("/", "/openapi.json"))
        finally:
            service.terminate()
    assert "<html" in page
    assert "/finetune" in script


def ask(service: subprocess.Popen[str], url: str) -> str:
    """A page of a service that may still be starting."""
    while service.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url, timeout=10.0, trust_env=False).raise_for_status().text
        time.sleep(0.05)
    raise AssertionError(service.communicate()[1])
