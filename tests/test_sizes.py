"""What can be read at a glance stays so: the sizes of files and functions, tables of data aside, and loose types."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for room in ("rayctsl", "serve") for path in (ROOT / room).rglob("*.py"))
TABLES = ("data/entries", "data/embedded/")  # tables of data, and drawings that are little else
LONG_FUNCTIONS = ("rayctsl/data/entries.py:all_entries",)
MOST_ANY, MOST_LOOSE_DICTS = 262, 92


def is_table(path: Path) -> bool:
    return any(f"rayctsl/{name}" in path.as_posix() for name in TABLES)


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions() -> Iterator[tuple[str, int]]:
    """Name and lines of every function, without its docstring: parsers of flags are tables, too."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                length = node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
                yield f"{path.relative_to(ROOT)}:{node.name}", length


def test_files_are_short() -> None:
    sizes = {str(path.relative_to(ROOT)): lines_of(path) for path in SOURCES if path.name != "__init__.py"}
    assert median(sizes.values()) <= 110
    assert {name: size for name, size in sizes.items() if size > 300 and not is_table(ROOT / name)} == {}


def test_functions_are_short() -> None:
    sizes = dict(functions())
    assert sorted(sizes.values())[int(0.9 * len(sizes))] <= 20
    assert {name: size for name, size in sizes.items() if size > 60}.keys() <= set(LONG_FUNCTIONS)


def test_loose_types_are_few() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    assert len(re.findall(r"\bAny\b", text)) <= MOST_ANY
    assert len(re.findall(r"dict\[str, Any\]", text)) <= MOST_LOOSE_DICTS


def test_a_name_means_one_class() -> None:
    names = [
        node.name for path in SOURCES for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []
