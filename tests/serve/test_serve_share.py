"""What all datasets of one key may take: refused before, while and after they are sent, for that key alone."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from serve.datasets import stored_name
from serve.inbox import Upload, UploadStatus
from serve.keys import Caller
from serve.problems import HttpProblem
from serve.service import Service
from serve.settings import Settings
from serve.uploads import Uploads
from tests.serve.applications import opened

TOKEN = "correct-horse-battery"
MIB = 2**20
Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    settings = Settings(storage=str(tmp_path), address="http://127.0.0.1:1", token=TOKEN, upload_share=10 * MIB)
    with opened(settings) as made:
        yield made


def have(inside: Service, owner: str, name: str, takes: int) -> None:
    upload = Upload(name=name, stored=stored_name(name, owner), owner=owner, status="ready", kept=takes)
    inside.uploads.inbox.write(upload)


async def blocks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(MIB)


def test_a_full_share_refuses_the_next_archive(inside: Service, ask: Ask, tmp_path: Path) -> None:
    mine, other = (inside.keys.add(Caller(name, ("finetune", "read"))) for name in ("mine", "other"))
    have(inside, "mine", "old", 8 * MIB)
    refused = ask("POST", "/datasets?name=new", mine, content=bytes(3 * MIB))
    assert refused.status_code == 413
    assert refused.json()["type"] == "share-full"
    assert refused.headers["connection"] == "close", "nobody needs the rest of its bytes"
    assert refused.json()["detail"] == "Your datasets may take 10 MiB, and 2 are left: delete some."
    piece = {"content-range": f"bytes 0-0/{3 * MIB}"}
    assert ask("POST", "/datasets?name=new", mine, content=b"x", headers=piece).json()["type"] == "share-full"
    unannounced = ask("POST", "/datasets?name=new", mine, content=blocks(3))
    assert unannounced.json()["type"] == "share-full"
    assert [path.suffix for path in (tmp_path / "service/inbox").iterdir()] == [".json"]  # of the old one

    fits = {"content-range": f"bytes 0-0/{2 * MIB}"}
    assert ask("POST", "/datasets?name=new", mine, content=b"x", headers=fits).status_code == 202
    small = {"content-range": f"bytes 0-0/{MIB}"}  # what was announced counts, though only a byte of it is there
    assert ask("POST", "/datasets?name=third", mine, content=b"x", headers=small).json()["type"] == "share-full"
    larger = {"content-range": f"bytes 0-0/{9 * MIB}"}
    for key in (other, TOKEN):
        assert ask("POST", "/datasets?name=new", key, content=b"x", headers=larger).status_code == 202


@pytest.mark.parametrize(
    ("status", "total", "takes"), [("receiving", 9, 9), ("receiving", None, 5), ("ready", 9, 3), ("failed", 9, 0)]
)
def test_what_an_upload_takes(status: UploadStatus, total: int | None, takes: int) -> None:
    assert Upload(name="a", stored="a", status=status, received=5, total=total, kept=3).takes == takes


def test_a_dataset_is_not_found_by_what_it_is_called_inside(inside: Service) -> None:
    stored = stored_name("flowers", "mine")
    inside.uploads.inbox.write(Upload(name="flowers", stored=stored, owner="mine", status="ready"))
    assert inside.uploads.resolve("flowers", "mine") == stored
    assert inside.uploads.resolve("flowers", "yours") == "flowers"  # everybody's, if there is one
    with pytest.raises(HttpProblem, match="flowers"):
        inside.uploads.resolve(stored, "yours")


@pytest.mark.parametrize("path", ["/datasets", "/v1/datasets"])
def test_an_archive_may_be_larger_than_a_document_and_is_begun_anew(path: str, inside: Service, ask: Ask) -> None:
    archive = inside.uploads.inbox.archive(stored_name("new", "operator"))
    for content in (bytes(2 * inside.settings.body_limit), b"anew"):
        part = {"content-range": f"bytes 0-{len(content) - 1}/{9 * MIB}"}
        assert ask("POST", f"{path}?name=new", TOKEN, content=content, headers=part).status_code == 202
        assert archive.read_bytes() == content


def test_what_is_being_imported_is_not_sent_anew(inside: Service, ask: Ask) -> None:
    inside.uploads.inbox.write(
        Upload(name="new", stored=stored_name("new", "operator"), owner="operator", status="importing")
    )
    assert ask("POST", "/datasets?name=new", TOKEN, content=b"x").json()["type"] == "upload-busy"


@pytest.mark.parametrize("text", ["bytes 0-3/3", "bytes 2-1/3", "bytes 0-/3", "lines 0-1/3", "bytes 0-1/*"])
def test_a_piece_lies_within_its_whole(text: str, ask: Ask) -> None:
    refused = ask("POST", "/datasets?name=new", TOKEN, content=b"x", headers={"content-range": text})
    assert (refused.status_code, "bytes FIRST-LAST/TOTAL" in refused.json()["detail"]) == (422, True)


def test_the_operator_has_no_share(inside: Service, ask: Ask) -> None:
    have(inside, "operator", "old", 100 * MIB)
    piece = {"content-range": f"bytes 0-0/{20 * MIB}"}
    assert ask("POST", "/datasets?name=new", TOKEN, content=b"x", headers=piece).status_code == 202


@pytest.mark.parametrize("share", [20_000, 10 * MIB])
def test_a_small_archive_of_many_pixels_counts_as_what_it_becomes(tmp_path: Path, share: int) -> None:
    packed = io.BytesIO()
    images, labels = np.zeros((200, 16, 16), np.uint8), np.arange(200) % 2
    np.savez_compressed(packed, x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert len(packed.getvalue()) < 10_000
    uploads = Uploads(tmp_path / "inbox", str(tmp_path / "data"), MIB, share)

    async def send() -> None:
        async def body() -> AsyncIterator[bytes]:
            yield packed.getvalue()

        upload = Upload(name="dark", stored="dark")
        upload = await uploads.receive(upload, body(), 0, uploads.room_for(upload, 0, bounded=True))
        await uploads.start_import(upload, 16, 0, bounded=True)
        await asyncio.gather(*uploads._tasks.values())

    asyncio.run(send())
    found = uploads.inbox.find("dark")
    assert found is not None
    if share == 20_000:
        assert found.status == "failed"
        assert found.error == "it takes 0 MiB, and of your 0 MiB 0 are left"
        assert not (tmp_path / "data" / "dark").exists()
        assert not uploads.inbox.archive("dark").exists()
    else:
        assert found.status == "ready", found.error
        assert found.takes > 400 * 16 * 16
