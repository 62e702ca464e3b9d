"""What the client sends and asks, request by request."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from rayctsl.client import ServiceError
from tests.client.told import Told


def test_ended_jobs_are_deleted_page_by_page_to_the_last() -> None:
    asked = list[tuple[str, str]]()
    pages = [{"deleted": ["ft-1", "ft-2"], "has_more": True}, {"deleted": ["ft-3"], "has_more": False}]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, str(request.url)))
        return httpx.Response(200, json=pages[len(asked) - 1])

    with Told(answer) as client:
        assert client.delete_jobs("failed", days=2.5) == ["ft-1", "ft-2", "ft-3"]
    assert asked == [("DELETE", "http://service/finetune?status=failed&days=2.5")] * 2


def test_an_upload_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    archive, content = tmp_path / "images.zip", bytes(range(250)) * 4
    archive.write_bytes(content)
    sent, shown = list[tuple[str, bytes]](), list[tuple[int, int]]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"status": "receiving", "received": 400, "total": 1000})
        sent.append((request.headers["content-range"], request.content))
        return httpx.Response(202)

    with Told(answer) as client:
        client._send("holiday", archive, {}, lambda *bytes_of: shown.append(bytes_of))
    assert sent == [("bytes 400-999/1000", content[400:])]
    assert shown == [(1000, 1000)]


def test_an_upload_says_how_large_and_how_split_its_images_are_to_be(tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"images")
    sent = list[dict[str, str]]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            sent.append(dict(request.url.params))
            return httpx.Response(202)
        known = httpx.Response(200, json={"status": "ready"})
        return known if sent else httpx.Response(404, json={"detail": "unknown"})

    with Told(answer) as client:
        client.upload("holiday", tmp_path / "images.zip", size=32, seed=7)
        client.upload("holiday", tmp_path / "images.zip")
    assert sent == [{"name": "holiday", "size": "32", "seed": "7"}, {"name": "holiday", "seed": "0"}]


def test_an_import_that_fails_is_the_fault_of_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayctsl.client.sending.time.sleep", lambda seconds: None)
    answers = [{"status": "importing", "stage": ""}, {"status": "importing", "stage": "reading 2"}]
    answers.append({"status": "failed", "error": "there are no images"})
    stages = list[str]()
    with (
        Told(lambda request: httpx.Response(200, json=answers.pop(0))) as client,
        pytest.raises(ServiceError, match="there are no images") as failed,
    ):
        client._imported("holiday", stages.append)
    assert failed.value.exit_code == 2
    assert stages == ["reading 2"]


def test_a_comparison_is_asked_for_with_its_recipe() -> None:
    asked = list[object]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(202, json={"id": "cmp-1"})

    with Told(answer) as client:
        assert client.compare("digits", ["a", "b"], seeds=2, steps=9) == {"id": "cmp-1"}
    body = {"dataset": "digits", "initializations": ["a", "b"], "seeds": 2, "steps": 9}
    assert asked == [("POST", "/comparisons", body)]


def test_predictions_are_told_by_the_files_that_were_named(tmp_path: Path) -> None:
    files = [tmp_path / kind / "1.png" for kind in ("cats", "dogs")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"x")
    rows = [{"name": "1.png", "classes": []}, {"name": "1.png", "error": "This is not an image."}]
    with Told(lambda request: httpx.Response(200, json={"data": rows})) as client:
        told = list(client.predict_many("best@pets", files))
    assert told == [{"name": str(files[0]), "classes": []}, {"name": str(files[1]), "error": "This is not an image."}]


@pytest.mark.parametrize(
    ("identifier", "path"),
    [
        ("ft-1", "/finetune/ft-1/weights"),
        ("best@digits", "/finetune/best%40digits/weights"),
        ("latest@digits", "/finetune/latest%40digits/weights"),
        ("latest", "/initializations/latest/weights"),
        ("../keys?all", "/initializations/..%2Fkeys%3Fall/weights"),
    ],
)
def test_what_is_downloaded_is_asked_for_by_its_kind_and_is_one_part_of_a_path(
    identifier: str, path: str, tmp_path: Path
) -> None:
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(404, json={"detail": "unknown"})

    with Told(answer) as client, pytest.raises(ServiceError):
        client.download(identifier, tmp_path)
    assert asked == [path]


@pytest.mark.parametrize("content", [b"<html>Bad gateway</html>", b"[]", b'"no"', b'{"error": "no"}'])
def test_an_answer_that_is_not_the_services_is_told_by_its_status(content: bytes) -> None:
    with (
        Told(lambda request: httpx.Response(502, content=content)) as client,
        pytest.raises(ServiceError, match="the service answers 502") as refused,
    ):
        client.cancel("ft-1")
    assert refused.value.status == 502
