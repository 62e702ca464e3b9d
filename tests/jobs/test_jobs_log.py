"""What a job says and prints, as its log keeps it."""

from __future__ import annotations

from pathlib import Path

from rayctsl.jobs.log import LOG, JobLog
from rayctsl.storage import Storage


def test_a_last_line_without_an_end_is_kept(tmp_path: Path) -> None:
    with JobLog(Storage(tmp_path)).listening():
        print("a line")
        print("half a line", end="")
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["a line", "half a line"]
