"""A misspelt dataset is refused by its name alone, before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rayctsl.data.names import EMBEDDED_NAMES, NotPrepared, check_dataset, check_name
from rayctsl.data.store import SplitInfo, write_split

MISSPELT = [
    "train --tasks latinn,shapes",
    "train --tasks latinn --dry-run",
    "finetune --init none --dataset digitz",
    "compare --init none,imagenet --dataset digitz",
    "evaluate somewhere --dataset digitz",
    "data check digitz",
    "data show digitz --out sheet.png",
    "data prepare cubb",
]
REFUSE = """
import json, sys
from rayctsl.commands.console import main
codes = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["rayctsl", *line.split()]
    codes.append(main())
heavy = {"numpy", "pyarrow", "torch", "ray", "PIL", "torchvision", "matplotlib"}
print(json.dumps([codes, sorted(heavy & set(sys.modules))]))
"""


def test_nothing_heavy_is_imported_before_a_misspelt_dataset_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, json.dumps(MISSPELT)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[2] * len(MISSPELT), []]
    assert done.stderr.count("did you mean") == done.stderr.count("\n") == len(MISSPELT)


def test_a_dataset_is_known_at_every_size_that_it_was_prepared_at(tmp_path: Path) -> None:
    root = str(tmp_path)
    with pytest.raises(NotPrepared, match="cub@48"):
        check_name("cub@48", root)
    for split in ("train", "test"):
        info = SplitInfo("cub", split, (48, 48, 3), ("a", "b"))
        images = np.zeros((2, 48, 48, 3), np.uint8)
        write_split(tmp_path / "cub@48" / f"{split}.arrow", images, np.arange(2), info)
    check_name("cub@48", root)
    with pytest.raises(NotPrepared, match="'cub'"):
        check_name("cub", root)


def test_pictures_in_the_users_home_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pictures").mkdir()
    check_dataset("~/pictures")
    with pytest.raises(ValueError, match="no folder or file ~/photos"):
        check_dataset("~/photos")


def test_the_list_of_names_is_the_suites() -> None:
    from rayctsl.data.embedded import SOURCES, TARGETS

    assert (*SOURCES, *TARGETS) == EMBEDDED_NAMES
