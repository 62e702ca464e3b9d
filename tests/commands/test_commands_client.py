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


def test_a_job_is_asked_for_with_all_that_the_command_says(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCTSL_WEBHOOK_SECRET", "hush")
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(202, json={"id": "ft-1"})

    flags = "--init i-1 --seed 0 --label mine --steps 5 --compare-with-scratch --webhook http://here --no-wait"
    with Told(answer) as client:
        assert command(client, "finetune", "stripes", *flags.split()) == 0
    (sent,) = asked
    assert sent.pop("webhook") == {"url": "http://here", "secret": "hush"}
    assert sent == {
        "dataset": "stripes",
        "initialization": "i-1",
        "seed": 0,
        "label": "mine",
        "steps": 5,
        "compare_with_scratch": True,
    }
    assert capsys.readouterr().out == "ft-1\n"


def test_a_job_that_failed_is_told_with_its_reason_and_nothing_is_downloaded(tmp_path: Path, capsys) -> None:
    progress = {"step": 3, "steps": 20}
    job = {"id": "ft-1", "status": "failed", "progress": progress, "error": {"message": "it diverged"}}
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        ended = "events" in request.url.path
        return httpx.Response(200, text="event: end\ndata: {}\n\n") if ended else httpx.Response(200, json=job)

    with Told(answer) as client:
        assert command(client, "finetune", "stripes", "--out", str(tmp_path / "weights")) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ft-1 failed: it diverged"
    assert not [path for path in asked if path.endswith("weights")]


@pytest.mark.parametrize(("finished", "code"), [(1, 0), (0, 1)])
def test_a_comparison_is_followed_to_its_end_and_fails_with_a_start_of_which_nothing_finished(
    finished: int, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayctsl.commands.client.working.time.sleep", lambda seconds: None)
    best = {"initialization": "i-1", "accuracy": 0.92, "interval": 0.014, "behind": 0.0, "behind_interval": None}
    worse = {"initialization": "none", "accuracy": 0.5, "interval": None, "behind": 0.42, "behind_interval": 0.01}
    unknown = dict.fromkeys(("accuracy", "interval", "behind", "behind_interval"))
    places = [{**best, "finished": 3}, {**worse, **({} if finished else unknown), "finished": finished}]
    made = {"id": "cmp-1", "jobs": {"i-1": [{"progress": {"step": 1, "steps": 5}}]}, "leaderboard": places}
    statuses = iter(("running", "running", "ended"))
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path, request.content))
        return httpx.Response(200, json={**made, "status": next(statuses)})

    with Told(answer) as client:
        assert command(client, "compare", "stripes", "--init", "i-1,,none", "--seeds", "4", "--steps", "5") == code
    first, *rest = asked
    body = {"dataset": "stripes", "initializations": ["i-1", "none"], "seeds": 4, "steps": 5}
    assert (*first[:2], json.loads(first[2])) == ("POST", "/comparisons", body)
    assert [path for _, path, _ in rest] == ["/comparisons/cmp-1"] * 2
    told = "none 50.00 % 42.00 ± 1.00 % 1" if finished else "none – – 0"
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1:] == ["i-1 92.00 ± 1.40 % 3", told, "comparison: cmp-1"]


def test_an_image_that_cannot_be_read_is_told_and_the_others_are_classified(tmp_path: Path, capsys) -> None:
    classes = [{"name": "cat", "probability": 0.75}, {"name": "dog", "probability": 0.25}]
    rows = [{"classes": [], "error": "not a picture"}, {"classes": classes, "error": None}]
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    with Told(lambda request: httpx.Response(200, json={"data": rows})) as client:
        assert command(client, "predict", "ft-1", str(tmp_path), "--top", "1") == 1
    said = capsys.readouterr()
    assert said.err == f"{tmp_path}/a.png: not a picture\n"
    assert said.out == f"{tmp_path}/b.png: cat 75.0 %\n"
