"""What a job says and prints, as its log keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.jobs import log
from rayctsl.jobs.log import LOG, JobLog, read_log
from rayctsl.storage import Storage


def test_a_last_line_without_an_end_is_kept(tmp_path: Path) -> None:
    with JobLog(Storage(tmp_path)).listening():
        print("a line")
        print("half a line", end="")
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["a line", "half a line"]


def said(folder: Path, *texts: str) -> list[str]:
    """The lines that are kept, without their time."""
    job_log = JobLog(Storage(folder))
    for text in texts:
        job_log.say(text)
    job_log.write()
    return [line.partition(" ")[2] for line in (folder / LOG).read_text().splitlines()]


def test_of_a_flood_the_beginning_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_BYTES", 200)  # a time and a digit take 32 of them
    kept = said(tmp_path, *(str(number % 10) for number in range(100)))
    assert kept == [*"012345", "the rest is left out"]


def test_a_line_is_as_long_as_can_be_read_and_names_no_place_of_this_machine(tmp_path: Path) -> None:
    assert said(tmp_path, "x" * 5000, "no file /data/lab-3/x.png") == ["x" * 2000, "no file …"]


def test_an_attempt_that_has_said_nothing_has_an_empty_log(tmp_path: Path) -> None:
    assert read_log(Storage(tmp_path), 1) == ""
    JobLog(Storage(tmp_path / "attempt-1")).say("it begins")
    assert read_log(Storage(tmp_path), 1).endswith(" it begins\n")
