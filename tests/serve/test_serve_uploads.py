"""Own datasets over HTTP: sent whole or in pieces, refused in one sentence, private, and gone when deleted."""

from __future__ import annotations

import asyncio
import hashlib
import io
import socket
import threading
import time
import zipfile
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest

from rayctsl.data.names import shown_name
from serve.bench.instance import Instance
from serve.bench.uploads import prove
from serve.datasets import is_visible, stored_name
from serve.inbox import Upload
from serve.uploads import Uploads
from tests.serve.conftest import wait_for
from tests.stripes import CLASSES, draw, write_pictures


@pytest.fixture(scope="module")
def client(waiting_service: Instance):
    with httpx.Client(base_url=waiting_service.url, timeout=60.0, trust_env=False) as http:
        yield http


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> bytes:
    folder = write_pictures(tmp_path_factory.mktemp("pictures"), count=24, side=16)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for path in sorted(folder.rglob("*.jpg")):
            packed.write(path, f"holiday/{path.relative_to(folder)}")
    return out.getvalue()


def settled(client: httpx.Client, name: str) -> dict:
    wait_for(lambda: client.get(f"/datasets/{name}").json()["status"] in ("ready", "failed"), 120)
    return client.get(f"/datasets/{name}").json()


def inbox(instance: Instance) -> list[str]:
    return sorted(path.name for path in (instance.storage / "service/inbox").glob("*") if path.suffix != ".json")


def test_from_an_archive_to_a_dataset_and_away(client, waiting_service, archive):
    answer = client.post("/datasets", params={"name": "mine", "size": 16}, content=archive)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == "/datasets/mine"
    again = client.post("/datasets", params={"name": "mine"}, content=archive)
    assert again.status_code == 409
    ready = settled(client, "mine")
    assert ready["error"] is None
    assert ready["class_names"] == sorted(CLASSES)
    assert (ready["dataset"]["num_train"], ready["dataset"]["num_test"]) == (20, 4)
    assert "mine" in [each["name"] for each in client.get("/datasets").json()["data"]]
    assert client.get("/datasets/mine/sheet").content.startswith(b"\x89PNG")
    job = client.post("/finetune", json={"dataset": "mine", "steps": 5})
    assert job.status_code == 202
    assert client.delete("/datasets/mine").status_code == 409
    client.post(f"/finetune/{job.json()['id']}/cancel")
    assert client.delete("/datasets/mine").status_code == 204
    assert client.get("/datasets/mine").status_code == 404
    assert client.get("/datasets/mine/sheet").status_code == 404
    assert not (waiting_service.data / "mine").exists()
    assert inbox(waiting_service) == []


def test_in_pieces_after_a_cut_connection(client, waiting_service, archive):
    half, total = len(archive) // 2, len(archive)
    first = {"content-range": f"bytes 0-{total - 1}/{total}"}
    with socket.create_connection(("127.0.0.1", waiting_service.port)) as wire:
        lines = ["POST /datasets?name=parts&size=16 HTTP/1.1", "host: 127.0.0.1", f"content-length: {total}"]
        head = "\r\n".join([*lines, f"content-range: {first['content-range']}", "", ""]).encode()
        wire.sendall(head + archive[:half])
        wait_for(lambda: (waiting_service.storage / "service/inbox/parts.archive").exists())
        wait_for(lambda: (waiting_service.storage / "service/inbox/parts.archive").stat().st_size > 0)
    wait_for(lambda: client.get("/datasets/parts").status_code == 200)
    there = client.get("/datasets/parts").json()
    assert there["status"] == "receiving"
    start = there["received"]
    assert 0 < start <= half
    wrong = client.post(
        "/datasets", params={"name": "parts"}, content=b"x", headers={"content-range": f"bytes 1-1/{total}"}
    )
    assert wrong.status_code == 409
    assert f"{start} bytes are here" in wrong.json()["detail"]
    rest = {"content-range": f"bytes {start}-{total - 1}/{total}"}
    assert client.post(
        "/datasets", params={"name": "parts", "size": 16}, content=archive[start:], headers=rest
    ).is_success
    assert settled(client, "parts")["dataset"]["num_train"] == 20
    assert client.delete("/datasets/parts").status_code == 204


def test_a_cut_connection_leaves_nothing(client, waiting_service, archive):
    place = waiting_service.storage / "service/inbox/cut.archive"
    with socket.create_connection(("127.0.0.1", waiting_service.port)) as wire:
        wire.sendall(
            b"POST /datasets?name=cut HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9999999\r\n\r\n" + archive
        )
        wait_for(place.exists)
    wait_for(lambda: not place.exists())
    assert client.get("/datasets/cut").status_code == 404


def test_the_service_answers_while_a_bad_archive_is_refused_by_name(client, waiting_service):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(3000):
            packed.writestr(f"cat/{number}.png", b"no picture")
            packed.writestr(f"dog/{number}.png", b"no picture")
    waits, stop = [], threading.Event()

    def knock() -> None:
        with httpx.Client(base_url=waiting_service.url, trust_env=False) as http:
            while not stop.is_set():
                begun = time.perf_counter()
                assert http.get("/livez").status_code == 200
                waits.append(time.perf_counter() - begun)
                stop.wait(0.01)

    thread = threading.Thread(target=knock)
    thread.start()
    assert client.post("/datasets", params={"name": "bad"}, content=out.getvalue()).status_code == 202
    early = client.post("/finetune", json={"dataset": "bad", "steps": 5}).json()
    failed = settled(client, "bad")
    stop.set()
    thread.join()
    assert failed["status"] == "failed"
    assert (early["type"], early["detail"]) == (
        "dataset-not-ready",
        "Dataset 'bad' is importing: wait for its import.",
    )
    assert client.get("/datasets/bad/sheet").json()["type"] == "dataset-not-ready"
    assert "6000 images cannot be read: cat/" in failed["error"]
    assert str(waiting_service.storage) not in failed["error"]
    assert inbox(waiting_service) == []
    assert not (waiting_service.data / "bad").exists()
    assert np.quantile(waits, 0.5) < 0.5  # a hung loop would not answer before the import's end
    assert client.delete("/datasets/bad").status_code == 204


@pytest.mark.parametrize(
    ("query", "content", "status", "sentence"),
    [
        ("name=Mine", b"x", 422, "ame"),
        ("name=a--b", b"x", 422, "ame"),
        ("name=flowers-", b"x", 422, "ame"),
        ("name=digits", b"x", 409, "There is a dataset 'digits' already"),
        ("name=empty", b"", 422, "nothing in the request"),
        ("name=big&size=9999", b"x", 422, "Size must be at most 512"),
    ],
)
def test_bad_requests(client, query, content, status, sentence):
    answer = client.post(f"/datasets?{query}", content=content)
    assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text


def test_names_belong_to_their_owner():
    mine, yours = stored_name("flowers", "me"), stored_name("flowers", "you")
    assert mine != yours
    assert is_visible(mine, "me")
    assert not is_visible(mine, "you")
    assert not is_visible(mine, None)
    assert is_visible("digits", "you")


def test_a_name_that_ends_in_a_dash_is_its_owners_too():
    """None is taken any more, but there may be some."""
    stored = stored_name("flowers-", "me")
    assert shown_name(stored) == "flowers-"
    assert is_visible(stored, "me")
    assert not is_visible(stored, "you")


def test_what_is_still_being_sent_is_not_cleared_away(tmp_path, monkeypatch):
    monkeypatch.setattr("serve.uploads.ABANDONED_SECONDS", -1.0)  # whatever is known counts as old
    uploads = Uploads(tmp_path / "inbox", str(tmp_path / "data"), max_bytes=100, share=100)

    async def slow(*blocks: bytes) -> AsyncIterator[bytes]:
        for block in blocks:
            yield block
            uploads.clear_away(alone=False)

    async def send() -> Upload:
        begun = await uploads.receive(Upload(name="a", stored="a", total=5), slow(b"fi"), 0, 100)
        return await uploads.receive(begun, slow(b"v", b"e!"), 2, 100)

    whole = asyncio.run(send())
    assert (whole.received, whole.sha256) == (5, hashlib.sha256(b"five!").hexdigest())
    uploads.clear_away(alone=False)
    assert uploads.inbox.find("a") is None, "what nobody sends any more goes"


def test_whoever_watches_an_import_sees_what_it_is_at(tmp_path, monkeypatch):
    uploads, seen = Uploads(tmp_path / "inbox", str(tmp_path / "data"), max_bytes=100, share=100), []

    async def imported(archive, stored, root, limits, size, seed, show) -> str:
        for stage in ("unpacking 500", "reading images"):
            await show(stage)
            seen.append((uploads.inbox.find(stored).status, uploads.inbox.find(stored).stage))
        return "one class only"

    async def start() -> None:
        await uploads.start_import(Upload(name="a", stored="a"), None, 0, bounded=True)
        await asyncio.gather(*uploads._tasks.values())

    monkeypatch.setattr("serve.uploads.run_importer", imported)
    asyncio.run(start())
    assert seen == [("importing", "unpacking 500"), ("importing", "reading images")]
    ended = uploads.inbox.find("a")
    assert (ended.status, ended.stage, ended.error) == ("failed", "", "one class only")


def test_arrays_are_taken_too(client):
    images, labels = draw(16, seed=1)
    out = io.BytesIO()
    np.savez_compressed(out, x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert client.post("/datasets", params={"name": "arrays"}, content=out.getvalue()).status_code == 202
    assert settled(client, "arrays")["dataset"]["num_classes"] == 4
    assert client.delete("/datasets/arrays").status_code == 204


def test_only_what_was_uploaded_can_be_deleted(client):
    assert client.delete("/datasets/digits").status_code == 409
    assert client.get("/datasets/digits").json()["class_names"][0]


@pytest.mark.long
def test_every_hostile_archive_gets_its_sentence_and_the_service_answers_meanwhile():
    figures = prove(files=1_000_000)
    assert figures["kinds"] >= 20
    assert figures["left_behind"] == 0
    assert figures["livez_p99_ms"] < 200
