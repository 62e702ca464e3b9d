"""The files of an experiment: a result is written whole, or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayctsl.experiments.output import write_json_file


def test_a_result_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    write_json_file(tmp_path / "new" / "result.json", {"loss": 0.5})
    assert json.loads((tmp_path / "new" / "result.json").read_text()) == {"loss": 0.5}
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ValueError, match=r"file/result\.json cannot be written: "):
        write_json_file(tmp_path / "file" / "result.json", {"loss": 0.5})
