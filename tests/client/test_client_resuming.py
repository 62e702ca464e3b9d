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


def whole(status: str, **more: str) -> dict[str, object]:
    """What the service says of an upload of which it has all."""
    return {"status": status, "received": 6, "total": 6, "stage": "", "error": None, **more}


@pytest.mark.parametrize("found", ["importing", "ready"])
@pytest.mark.parametrize("checksum", [{}, {"sha256": hashlib.sha256(b"images").hexdigest()}])
def test_an_upload_of_which_only_the_answer_was_lost_is_not_sent_again(
    found: str, checksum: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "images.zip").write_bytes(b"images")
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if request.method == "POST":
            assert request.content == b"images"
            raise httpx.ReadError("cut")
        if "POST" not in asked:
            return httpx.Response(404, json={"detail": "unknown"})
        return httpx.Response(200, json=whole(found if len(asked) == 3 else "ready", **checksum))

    with Told(answer) as client:
        assert client.upload("flowers", tmp_path / "images.zip")["status"] == "ready"
    assert asked == ["GET", "POST", "GET", "GET"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, whole("ready", sha256="of another")),
        (whole("ready"), whole("ready")),  # there was one of this name from the first
    ],
)
def test_an_upload_is_not_taken_for_another_dataset_of_its_name(
    before: dict[str, object] | None, after: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "images.zip").write_bytes(b"images")
    sent = list[bytes]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            known = after if sent else before
            return httpx.Response(200, json=known) if known else httpx.Response(404, json={"detail": "unknown"})
        sent.append(request.content)
        if len(sent) == 1:
            raise httpx.ReadError("cut")
        return httpx.Response(409, json={"type": "name-taken", "detail": "There is a dataset 'flowers' already."})

    with Told(answer) as client, pytest.raises(ServiceError, match="There is a dataset 'flowers' already"):
        client.upload("flowers", tmp_path / "images.zip")
    assert len(sent) == 2


@pytest.mark.parametrize("broken", [True, False])
def test_a_service_that_is_still_at_what_came_before_the_break_is_waited_for(broken: bool, tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"images")
    sent = list[bytes]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            done = len(sent) == 3
            return httpx.Response(200, json=whole("ready")) if done else httpx.Response(404, json={"detail": "unknown"})
        sent.append(request.content)
        if len(sent) == 1 and broken:
            raise httpx.ReadError("cut")
        return httpx.Response(409, json={"type": "upload-busy", "detail": "Dataset 'flowers' is being sent already."})

    with Told(answer) as client:
        if broken:
            assert client.upload("flowers", tmp_path / "images.zip")["status"] == "ready"
        else:
            with pytest.raises(ServiceError, match="is being sent already") as refused:
                client.upload("flowers", tmp_path / "images.zip")
            assert refused.value.exit_code == 2
    assert len(sent) == (3 if broken else 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_question_waits_as_long_as_the_service_says(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited, answers = list[float](), ["7", "3600", "", None]
    monkeypatch.setattr("rayctsl.client.connection.time.sleep", waited.append)

    def answer(request: httpx.Request) -> httpx.Response:
        left = answers.pop(0)
        if left is None:
            return httpx.Response(200, json={"id": "ft-1"})
        return httpx.Response(status, json={"detail": "wait a moment"}, headers={"retry-after": left} if left else {})

    with Told(answer) as client:
        with pytest.raises(ServiceError, match="wait a moment"):
            client.job("ft-1")  # the third answer does not say how long
        assert client.job("ft-1") == {"id": "ft-1"}
    assert waited == [7.0, 60.0]


@pytest.mark.parametrize(("method", "tries"), [("GET", RETRIES), ("POST", 1)])
def test_a_service_that_is_always_busy_is_asked_so_often_and_what_changes_something_once(
    method: str, tries: int
) -> None:
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(429, json={"detail": "wait a moment"}, headers={"retry-after": "1"})

    with Told(answer) as client, pytest.raises(ServiceError, match="wait a moment") as refused:
        client.job("ft-1") if method == "GET" else client.finetune("digits")
    assert asked == [method] * tries
    assert refused.value.status == 429
