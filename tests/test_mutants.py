"""The list of seeded mistakes fits the code, and docs/MUTANTS.md is that list; what may be drawn beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutants.draw import who_runs
from tests.mutants.listing import ROOT, Mutant, as_table, read_mutants
from tests.mutants.memory import Memory
from tests.mutants.mistakes import Mistake, changes_something, mistakes_in


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


def test_mistakes_of_a_file_are_small_and_say_something_else(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        'def fee(paid: int = 3) -> int:\n    """Not 5."""\n    if "ß" in sent(paid, by=me):\n'
        '        raise ValueError(f"{paid + 1} is wrong")\n    return paid\n'
    )
    found, text = mistakes_in(tmp_path / "code.py"), (tmp_path / "code.py").read_text()
    assert [(mistake.line, mistake.told(text)) for mistake in found] == [
        (1, "3 -> 4"),
        (3, '"ß" in sent(paid, by=me) -> not ("ß" in sent(paid, by=me))'),
        (3, "in -> not in"),
        (3, ", by=me -> nothing"),
    ]
    assert "def fee(paid: int = 4)" in found[0].made_in(text)
    assert all(changes_something(text, mistake) for mistake in found)
    assert not changes_something(text, Mistake(2, "", 0, 0, "\n"))
    assert not changes_something(text, Mistake(2, "", 0, 0, "if"))


def test_a_line_is_tried_with_the_tests_that_run_it(tmp_path: Path) -> None:
    here, file = "tests.test_mutants.test_a_line_is_tried_with_the_tests_that_run_it", ROOT / "rayctsl/flat.py"
    noted = CoverageData(str(tmp_path / "noted"))
    noted.set_context(here)
    noted.add_lines({str(file): [30]})
    noted.set_context("rayctsl.experiments.image.cells.test_cells")
    noted.add_lines({str(file): [30, 31]})
    assert who_runs(file, 30, noted) == (f"tests/test_mutants.py::{here.split('.')[-1]}", "-m", "not long")
    assert who_runs(file, 31, noted) == ("tests/test_flat.py", "-m", "not long")
    assert who_runs(ROOT / "rayctsl/models/no_who_runs_its_own.py", 1, noted)[0] == "tests/models"
