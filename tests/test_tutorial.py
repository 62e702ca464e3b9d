"""The tutorial's commands and programs, run as they stand, on a folder of pictures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rayctsl.commands import console
from tests.stripes import write_pictures

TEXT = (Path(__file__).parent.parent / "docs" / "TUTORIAL.md").read_text()
HERE, _ = TEXT.split("## By HTTP")  # the rest: tests/serve/test_serve_tutorial.py, tests/test_hub.py


@pytest.mark.slow
def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RAYCTSL_STORAGE", str(tmp_path / "storage"))
    write_pictures(tmp_path / "pictures", count=40, side=32)
    blocks = re.findall(r"```(sh|python)\n(.*?)```", HERE, re.S)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "sh", "python", "python"]
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, "TUTORIAL.md", "exec"), {})
            continue
        for line in block.strip().splitlines():
            words = shlex.split(line)[1:]
            words += ["--jobs", "1"] if words[0] in ("finetune", "compare") else []  # processes cost seconds each
            words += ["--time-limit", "1"] if "--time-limit" in words else []  # the last one counts
            assert console.main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "pictures/rows/000.jpg: " in said.out
    assert "behind the best" in said.out
    assert "of held-out training images" in said.err
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
