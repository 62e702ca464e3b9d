"""The list of seeded mistakes: what `tests/mutants/*.toml` say, whether it fits the code, and docs/MUTANTS.md."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Mutant:
    """One mistake, and who must notice it. `equivalent` says why nobody can."""

    room: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    def problem(self) -> str | None:
        """Why the list and the code do not fit together any more."""
        path = ROOT / self.file
        found = path.read_text().count(self.old) if path.exists() else 0
        if found != 1:
            return f"{self.room}: {self.breaks}: {self.file} has the old text {found} times, not once: {self.old!r}"
        lost = [test for test in self.tests if not _exists(test)]
        return f"{self.room}: {self.breaks}: there is no test {lost[0]}" if lost else None


def _exists(test: str) -> bool:
    file, *names = test.split("::")
    text = (ROOT / file).read_text() if (ROOT / file).exists() else None
    return text is not None and all(name.split("[")[0] in text for name in names)


def read_mutants(rooms: Sequence[str]) -> list[Mutant]:
    found = []
    for path in sorted(HERE.glob("*.toml")):
        if not rooms or path.stem in rooms:
            raw = tomllib.loads(path.read_text())["mutant"]
            found += [Mutant(path.stem, **{**one, "tests": tuple(one.get("tests", ()))}) for one in raw]
    return found


def as_table(mutants: Sequence[Mutant]) -> str:
    """The list as a page of Markdown."""
    rooms = ", ".join(f"{room} {count}" for room, count in sorted(Counter(each.room for each in mutants).items()))
    lines = ["# Seeded mistakes", "", "Written by `python -m tests.mutants --list`; `make mutants` tries them all.", ""]
    lines += [f"{len(mutants)} mistakes: {rooms}.", ""]
    lines += ["| room | mistake | in | caught by |", "|---|---|---|---|"]
    for each in mutants:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in each.tests)
        lines.append(f"| {each.room} | {each.breaks} | `{each.file}` | {tests or 'nobody: ' + each.equivalent} |")
    return "\n".join(lines)
