"""The client's command with a job that really runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.client import Client
from rayctsl.commands.client import main
from serve.bench.instance import Instance

pytestmark = pytest.mark.ray


def test_finetune_shows_progress_and_fetches_the_weights(
    service: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.safetensors"
    arguments = ["finetune", "stripes", "--steps", "20", "--compare-with-scratch", "--out", str(out)]
    assert main(["--url", service.url, *arguments]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("accuracy: ")
    assert lines[1].startswith("from scratch: ")
    job = lines[2].removeprefix("job: ")
    assert "20 of 20 steps" in shown.err
    with Client(service.url) as client:
        assert client.job(job)["result"]["weights"]["size"] == out.stat().st_size
        points = [event for event in client.events(job) if event["event"] == "point"]
    assert len(points) == 40
