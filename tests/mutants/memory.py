"""What has been tried on this very code: a run that was cut off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutants.bench import COPIED
from tests.mutants.listing import HERE, ROOT, Mutant

PLACE = ROOT / ".cache" / "mutants.json"


class Memory:
    """Outcomes by mutant and the tests that passed without any, of one state of the code."""

    def __init__(self, place: Path = PLACE):
        self.place, self.code = place, _digest()
        raw = json.loads(place.read_text()) if place.exists() else {}
        fits = raw.get("code") == self.code
        self.outcomes: dict[str, str] = raw["outcomes"] if fits else {}
        self.passed: list[str] = raw["passed"] if fits else []

    def outcome(self, mutant: Mutant) -> str | None:
        return self.outcomes.get(_key(mutant))

    def note(self, mutant: Mutant, outcome: str) -> None:
        self.outcomes[_key(mutant)] = outcome
        self._write()

    def note_passed(self, tests: Iterable[str]) -> None:
        self.passed = sorted({*self.passed, *tests})
        self._write()

    def _write(self) -> None:
        self.place.parent.mkdir(exist_ok=True)
        part = self.place.with_suffix(".part")
        part.write_text(json.dumps({"code": self.code, "passed": self.passed, "outcomes": self.outcomes}, indent=1))
        part.replace(self.place)


def _key(mutant: Mutant) -> str:
    return hashlib.sha256(repr(mutant).encode()).hexdigest()[:16]


def _digest() -> str:
    """Of everything that a trial copies, but the list of mutants itself."""
    total = hashlib.sha256()
    for path in _files():
        total.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _files() -> Iterator[Path]:
    for name in COPIED:
        for path in sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]:
            if path.is_file() and path.suffix != ".pyc" and path.parent != HERE:
                yield path
