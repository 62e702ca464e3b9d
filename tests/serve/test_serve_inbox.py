"""Uploads without a service: how much may come, what stays of it, and what is cleared away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serve.inbox import Upload, UploadStatus
from serve.problems import HttpProblem
from serve.uploads import ABANDONED_SECONDS, Uploads


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "inbox", str(tmp_path / "data"), max_bytes=100, share=100)


def receive(uploads: Uploads, upload: Upload, *blocks: bytes, room: int = 100) -> Upload:
    async def body() -> AsyncIterator[bytes]:
        for block in blocks:
            yield block

    return asyncio.run(uploads.receive(upload, body(), 0, room))


def known(uploads: Uploads) -> dict[str, str]:
    return {upload.name: upload.status for upload in uploads.inbox.all()}


def test_an_archive_may_be_as_large_as_there_is_room(uploads: Uploads) -> None:
    assert receive(uploads, Upload(name="a", stored="a"), b"fiv", b"e!", room=5).received == 5
    with pytest.raises(HttpProblem) as refused:
        receive(uploads, Upload(name="b", stored="b"), b"six", b"ty!", room=5)
    assert refused.value.status == 413
    assert not uploads.inbox.archive("b").exists()


def test_no_more_comes_than_was_announced_and_what_came_before_is_kept(uploads: Uploads) -> None:
    with pytest.raises(HttpProblem, match="More than the announced 5 bytes") as refused:
        receive(uploads, Upload(name="a", stored="a", total=5), b"fiv", b"e and more")
    assert refused.value.status == 422
    found = uploads.inbox.find("a")
    assert found is not None
    assert (found.status, found.received, found.sha256) == ("receiving", 3, None)


def test_only_what_nobody_is_at_any_more_is_cleared_away(uploads: Uploads) -> None:
    def leave(name: str, status: UploadStatus, seconds: float) -> None:
        upload = Upload(name=name, stored=name, status=status, changed_at=time.time() - seconds)
        (uploads.inbox.folder / f"{name}.json").write_bytes(upload.to_bytes())

    uploads.inbox.folder.mkdir()
    leave("paused", "receiving", ABANDONED_SECONDS - 60)
    leave("given-up", "receiving", ABANDONED_SECONDS + 60)
    leave("elsewhere", "importing", ABANDONED_SECONDS - 60)
    leave("lost", "importing", ABANDONED_SECONDS + 60)
    leave("ours", "importing", ABANDONED_SECONDS + 60)
    leave("ready", "ready", ABANDONED_SECONDS + 60)
    uploads._tasks = dict.fromkeys(["ours"], asyncio.Task)  # type: ignore[assignment]  # an import of many images
    there = {"paused": "receiving", "elsewhere": "importing", "lost": "failed", "ours": "importing", "ready": "ready"}
    uploads.clear_away(alone=False)
    assert known(uploads) == there
    uploads.clear_away(alone=True)
    assert known(uploads) == {**there, "elsewhere": "failed"}
