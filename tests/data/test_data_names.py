"""A misspelt dataset is refused by its name alone, before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys

from rayctsl.data.names import EMBEDDED_NAMES

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


def test_the_list_of_names_is_the_suites() -> None:
    from rayctsl.data.embedded import SOURCES, TARGETS

    assert (*SOURCES, *TARGETS) == EMBEDDED_NAMES
