"""A driver outside of the cluster: `--address ray://…`."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayctsl.ports import free_ports
from rayctsl.registry import open_initialization

pytestmark = [pytest.mark.ray, pytest.mark.long]
TINY = ["--inner-steps", "4", "--trajectories", "2", "--tasks", "latin,georgian", "--set", "data.batch_size=8"]
MODEL = ["--set", "model.name=resnet8", "--set", "model.width=4", "--set", "tensorboard=false"]


@pytest.fixture
def short_path() -> Iterator[str]:
    """Ray's sockets lie below it, and a socket's path has at most 107 characters."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield folder


def test_a_run_over_a_client_has_the_bits_of_one_process(
    python: str, data_root: Path, tmp_path: Path, short_path: str
) -> None:
    port, client = free_ports(2)
    ray = str(Path(python).with_name("ray"))
    start = [ray, "start", "--head", "--block", "--port", str(port), "--ray-client-server-port", str(client)]
    start += ["--num-cpus", "3", "--include-dashboard", "false", "--temp-dir", short_path]
    with (tmp_path / "head.log").open("w") as log:
        head = subprocess.Popen(start, stdout=log, stderr=log, start_new_session=True)
    try:
        command = [python, "-m", "rayctsl.train", *TINY, *MODEL, "--workers", "2", "--run-dir", str(tmp_path / "run")]
        command += ["--data-root", str(data_root), "--address", f"ray://127.0.0.1:{client}"]
        while (done := subprocess.run(command, capture_output=True, text=True, timeout=300)).returncode == 2:
            assert "no Ray cluster answers" in done.stderr  # yet
            assert head.poll() is None, (tmp_path / "head.log").read_text()
        assert done.returncode == 0, done.stderr
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)
    from rayctsl.config import load_config
    from rayctsl.learning.run import run_local
    from rayctsl.learning.run_folder import RunFolder

    config = load_config(str(tmp_path / "run" / "config.yaml"))
    here = run_local(config, RunFolder.open(str(tmp_path / "here"), config))
    assert open_initialization(str(tmp_path / "run")).card.sha256 == here.card.sha256
