"""The client's commands: what they ask of a service and what they show of its answers."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from rayctsl.client import Client
from rayctsl.commands.client import COMMANDS, build_parser
from tests.client.told import Told


def command(client: Client, *words: str) -> int:
    options = build_parser().parse_args(words)
    return COMMANDS[options.command](client, options)


@pytest.mark.parametrize(
    ("flags", "paths"),
    [
        ((), ["/finetune/ft-1", "/comparisons/cmp-2", "/models/mine"]),
        (("--weights",), ["/finetune/ft-1/weights", "/finetune/cmp-2/weights", "/finetune/mine/weights"]),
    ],
)
def test_delete_takes_what_is_named_and_with_weights_the_models_alone(flags, paths) -> None:
    asked = list[tuple[str, str]]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path))
        return httpx.Response(204)

    with Told(answer) as client:
        assert command(client, "delete", "ft-1", "cmp-2", "mine", *flags) == 0
    assert asked == [("DELETE", path) for path in paths]


@pytest.fixture
def every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told each time that there is some, and not every few seconds."""
    monkeypatch.setattr("rayctsl.progress.LINE_SECONDS", (0.0, 0.0))


def shares(said: str) -> list[str]:
    return re.findall(r"\((\d+) %\)", said)


@pytest.mark.usefixtures("every_line")
def test_a_downloads_bar_counts_every_byte_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = [bytes(25)] * 4
    etag = hashlib.sha256(b"".join(content)).hexdigest()

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"etag": f'"{etag}"', "content-length": "100"}, content=iter(content))

    with Told(answer) as client:
        assert command(client, "download", "ft-1", "--out", str(tmp_path / "weights")) == 0
    assert shares(capsys.readouterr().err) == ["25", "50", "75", "100"]


@pytest.mark.usefixtures("every_line")
def test_an_uploads_bar_counts_every_byte_once(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayctsl.client.sending.BLOCK", 25)
    (tmp_path / "images.zip").write_bytes(bytes(100))
    ready = {"status": "ready", "dataset": {"num_train": 8, "num_test": 2, "num_classes": 2}}
    with Told(lambda request: httpx.Response(200, json=ready)) as client:
        assert command(client, "upload", "mine", str(tmp_path / "images.zip")) == 0
    said = capsys.readouterr()
    assert shares(said.err) == ["25", "50", "75", "100"]
    assert said.out == "mine: 8 training and 2 test images of 2 classes\n"


def test_accuracies_are_shown_in_percent_while_a_job_runs_and_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"accuracy": 0.92, "scratch_accuracy": 0.5}
    job = {"id": "ft-1", "status": "succeeded", "progress": {"step": 0, "steps": 20}, "result": result, "error": None}
    points = [("initialization", 0.92), ("scratch", 0.5)]
    events = [("point", {"run": run, "step": 20, "accuracy": accuracy}) for run, accuracy in points]
    lines = [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in (*events, ("end", {}))]

    def answer(request: httpx.Request) -> httpx.Response:
        return (
            httpx.Response(200, text="".join(lines)) if "events" in request.url.path else httpx.Response(200, json=job)
        )

    with Told(answer) as client:
        assert command(client, "follow", "ft-1") == 0
    said = capsys.readouterr()
    assert "initialization 92.0 %" in said.err
    assert said.out.splitlines() == ["accuracy: 92.00 %", "from scratch: 50.00 %", "job: ft-1"]
