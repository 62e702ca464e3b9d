"""The list of seeded mistakes fits the code, and docs/MUTANTS.md is that list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.listing import ROOT, Mutant, as_table, read_mutants
from tests.mutants.memory import Memory


def test_every_mutant_fits_the_code() -> None:
    assert [problem for mutant in read_mutants([]) if (problem := mutant.problem())] == []


def test_the_page_is_what_the_command_prints() -> None:
    printed = as_table(read_mutants([])) + "\n"
    assert (ROOT / "docs/MUTANTS.md").read_text() == printed, "python -m tests.mutants --list > docs/MUTANTS.md"


def test_what_was_tried_is_known_until_the_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (Mutant("room", "it", "file", "old", new) for new in ("new", "newer"))
    Memory(tmp_path / "mutants.json").note(one, "caught")
    Memory(tmp_path / "mutants.json").note_passed(["tests/test_x.py"])
    again = Memory(tmp_path / "mutants.json")
    assert (again.outcome(one), again.outcome(other), again.passed) == ("caught", None, ["tests/test_x.py"])
    monkeypatch.setattr("tests.mutants.memory._digest", lambda: "another")
    later = Memory(tmp_path / "mutants.json")
    assert (later.outcome(one), later.passed) == (None, [])
