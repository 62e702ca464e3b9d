"""The tutorial's way by HTTP, its blocks run by a shell as they stand, but for the port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serve.bench.instance import Instance
from tests.stripes import CLASSES, write_pictures

TEXT = (Path(__file__).parents[2] / "docs" / "TUTORIAL.md").read_text()


@pytest.mark.ray
def test_every_block_runs(service: Instance, tmp_path: Path):
    write_pictures(tmp_path / "pictures", count=40, side=32)
    blocks = re.findall(r"```bash\n(.*?)```", TEXT.partition("## By HTTP")[2], re.S)
    assert len(blocks) == 2
    script = "".join(blocks).replace("localhost:8000", f"127.0.0.1:{service.port}")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_PROXY": "*"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr + done.stdout
    answer = json.loads(done.stdout[done.stdout.rindex('{"object":"prediction"') :])
    assert {each["name"] for each in answer["classes"]} == set(CLASSES)
