"""What the program has: parsers, variables, routes and metrics, asked of the program itself."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODULES = {
    "rayctsl.train": "rayctsl.commands.train",
    "rayctsl.tune": "rayctsl.commands.tune",
    "rayctsl.data": "rayctsl.commands.data",
    "serve": "serve.__main__",
}
# Read by others than the program: each with the reader.
FOREIGN_VARIABLES = {
    "AWS_REGION": "the AWS SDK in pyarrow",
    "HOME": "Python and its libraries",
    "MALLOC_ARENA_MAX": "glibc",
    "PGPASSWORD": "libpq",
    "PGDATA": "the postgres image",
    "POSTGRES_USER": "the postgres image",
    "POSTGRES_DB": "the postgres image",
    "POSTGRES_PASSWORD": "the postgres image",
    "REDIS_PASSWORD": "the redis container's own arguments",
}


def parse(words: list[str]) -> argparse.Namespace:
    """The program's own parser on `python -m MODULE …`. ValueError when it does not understand."""
    if words[:2] != ["python", "-m"] or words[2] not in MODULES:
        raise ValueError(f"{words[:3]} is no command of ours")
    module = importlib.import_module(MODULES[words[2]])
    build = getattr(module, "build_parser", None) or module.parser
    try:
        parsed: argparse.Namespace = build().parse_args(words[3:])
    except SystemExit as stop:
        raise ValueError(f"{words[2]} does not understand {' '.join(words[3:])}") from stop
    return parsed


@functools.cache
def program_variables() -> frozenset[str]:
    """The environment variables that rayctsl and serve read."""
    pattern = re.compile(r"environ(?:\.get\(|\.setdefault\(|\[)\s*\"(\w+)\"")
    sources = [*(ROOT / "rayctsl").rglob("*.py"), *(ROOT / "serve").rglob("*.py")]
    return frozenset(name for path in sources for name in pattern.findall(path.read_text()))


@functools.cache
def _words_of_ray() -> frozenset[str]:
    folder = Path(importlib.import_module("ray").__file__ or "").parent
    parts = ("_private", "_common", "dashboard/modules/job", "dashboard/modules/metrics/dashboards")
    sources = [path for part in parts for path in (folder / part).rglob("*.py")] + [folder / "dashboard" / "consts.py"]
    return frozenset(word for path in sources for word in re.findall(r"\w+", path.read_text()))


def ray_names(name: str) -> bool:
    """Whether Ray's own code knows a variable or a metric."""
    return name in _words_of_ray()


def has_reader(variable: str) -> bool:
    return variable in program_variables() or variable in FOREIGN_VARIABLES or ray_names(variable)


@functools.cache
def routes() -> frozenset[str]:
    """The paths that the service answers at."""
    from serve.app import create_app
    from serve.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(storage=folder, host="0.0.0.0", token="t" * 32, address="http://127.0.0.1:8265")
        app = create_app(settings)
        app.state.service.store.close()
        return frozenset(app.openapi()["paths"])


@functools.cache
def metrics() -> frozenset[str]:
    """The names under which Prometheus sees the service's figures and a run's: Ray puts `ray_` before the latter."""
    return frozenset([*_service_metrics(), *_run_metrics()])


def _service_metrics() -> Iterator[str]:
    from serve.metrics import ServiceMetrics

    for family in ServiceMetrics().registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        yield from (family.name + suffix for suffix in suffixes)


def _run_metrics() -> Iterator[str]:
    tree = ast.parse((ROOT / "rayctsl" / "cluster" / "live.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Gauge", "Counter"):
            (name,) = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
            yield f"ray_{name}"
