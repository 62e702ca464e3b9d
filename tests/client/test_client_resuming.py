"""The client where a connection broke: downloads and events go on from there, and nothing is asked for twice."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from rayctsl.client import ServiceError
from rayctsl.client.connection import RETRIES
from tests.client.told import Told

CONTENT = b"a whole model"
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a second try."""
    monkeypatch.setattr("rayctsl.client.time.sleep", lambda seconds: None)
    monkeypatch.setattr("rayctsl.client.sending.time.sleep", lambda seconds: None)
    monkeypatch.setattr("rayctsl.client.connection.time.sleep", lambda seconds: None)


def weights(status: int, content: bytes) -> httpx.Response:
    headers = {"etag": f'"{CHECKSUM}"', "content-length": str(len(content))}
    return httpx.Response(status, headers=headers, content=iter([content]))


def begun(folder: Path, content: bytes) -> Path:
    """What an earlier command left of a download."""
    (folder / "model.part").write_bytes(content)
    (folder / "model.part.etag").write_text('"first"')
    return folder / "model"


@pytest.mark.parametrize(
    ("there", "status", "sent"),
    [
        (CONTENT[:7], 206, CONTENT[7:]),
        (b"another", 200, CONTENT),  # the file has changed since
        (CONTENT, 416, b""),  # only the end of the command was missing
    ],
)
def test_a_download_that_was_begun_is_ended_by_the_next_command(
    there: bytes, status: int, sent: bytes, tmp_path: Path
) -> None:
    asked, shown = list[tuple[str, str]](), list[tuple[int, int]]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.headers["range"], request.headers["if-range"]))
        return weights(status, sent)

    with Told(answer) as client:
        path = client.download("ft-1", begun(tmp_path, there), lambda *bytes_of: shown.append(bytes_of))
    assert path.read_bytes() == CONTENT
    assert asked == [(f"bytes={len(there)}-", '"first"')]
    assert shown == ([(13, 13)] if sent else [])
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_part_of_which_nobody_knows_the_file_is_not_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "model.part").write_bytes(b"of what?")

    def answer(request: httpx.Request) -> httpx.Response:
        assert "range" not in request.headers
        return weights(200, CONTENT)

    with Told(answer) as client:
        assert client.download("ft-1", tmp_path / "model").read_bytes() == CONTENT


def test_a_download_that_is_refused_leaves_what_is_there(tmp_path: Path) -> None:
    with (
        Told(lambda request: httpx.Response(503, json={"detail": "The weights are damaged."})) as client,
        pytest.raises(ServiceError, match="The weights are damaged") as refused,
    ):
        client.download("ft-1", begun(tmp_path, b"begun"))
    assert refused.value.status == 503
    assert (tmp_path / "model.part").read_bytes() == b"begun"


def test_a_job_asked_for_again_after_a_break_is_the_same_job() -> None:
    keys = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) % 2:
            raise httpx.ReadError("cut")
        return httpx.Response(202, json={"id": "ft-1"})

    with Told(answer) as client:
        for _ in range(2):
            assert client.finetune("digits") == {"id": "ft-1"}
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert keys[0] != keys[2], "two jobs that are alike are two jobs"


def test_events_are_taken_up_after_the_last_that_came() -> None:
    first = (
        'retry: 2000\n\nevent: point\nid: 1\ndata: {"step": 5}\n\n: still here\n\nevent: status\ndata: {"step": 7}\n\n'
    )
    second = 'event: end\nid: 2\ndata: {"status": "succeeded"}\n\n'
    seen, heard = list[str | None](), list[dict]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/finetune/ft-1":
            return httpx.Response(200, json={"id": "ft-1"})
        seen.append(request.headers.get("last-event-id"))
        return httpx.Response(200, text=second if len(seen) > 1 else first)

    with Told(answer) as client:
        assert client.wait("ft-1", heard.append) == {"id": "ft-1"}
    assert seen == [None, "1"]
    assert heard == [
        {"event": "point", "step": 5},
        {"event": "status", "step": 7},
        {"event": "end", "status": "succeeded"},
    ]


def test_events_of_a_job_that_is_not_there_are_refused_at_once() -> None:
    with (
        Told(lambda request: httpx.Response(404, json={"detail": "There is no job 'ft-1'."})) as client,
        pytest.raises(ServiceError, match="There is no job") as refused,
    ):
        list(client.events("ft-1"))
    assert refused.value.status == 404


@pytest.mark.parametrize("what", ["download", "upload"])
def test_what_breaks_off_again_and_again_is_told_at_last(what: str, tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"images")
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/datasets/holiday":
            return httpx.Response(404, json={"detail": "unknown"})
        asked.append(request.method)
        raise httpx.WriteError("cut")

    with Told(answer) as client, pytest.raises(ServiceError, match="broke off: cut; run it again"):
        client.upload("holiday", tmp_path / "images.zip") if what == "upload" else client.download("ft-1", tmp_path)
    assert len(asked) == RETRIES
