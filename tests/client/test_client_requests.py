"""What the client sends and asks, request by request."""

from __future__ import annotations

from pathlib import Path

import httpx

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
