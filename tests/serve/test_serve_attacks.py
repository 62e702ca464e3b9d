"""What a guest, a bad card, a full disk or a dead cluster does to a running service: a refusal, never harm."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.bench.instance import Instance, make_dataset, make_initialization
from tests.serve.conftest import wait_for
from tests.serve.warm import WarmInstance

NOBODY = "http://127.0.0.1:1"
SMALL = {"dataset": "stripes", "steps": 3}


def get(service: Instance, path: str, **options: object) -> httpx.Response:
    return httpx.get(service.url + path, trust_env=False, verify=False, timeout=10.0, **options)


@pytest.fixture
def world(make_world: Callable[[], Path]) -> Path:
    return make_world()


def test_links_in_the_storage_are_not_followed(world: Path, tmp_path: Path) -> None:
    secret = tmp_path / "auth_token"
    secret.write_text("the-cluster's-token")
    first, second, third = sorted((world / "storage" / "initializations").iterdir())
    for name in ("README.md", "phi.safetensors"):
        (first / name).unlink()
        (first / name).symlink_to(secret)
    second.rename(tmp_path / "elsewhere")
    second.symlink_to(tmp_path / "elsewhere")
    (third / "README.md").unlink()
    os.mkfifo(third / "README.md")
    with WarmInstance(world, "--address", NOBODY).running() as service:
        cards = get(service, "/initializations").json()["data"]
        assert len(cards) == 2, "an initialization behind a link is not one of this storage"
        for card in cards:
            for name in ("README.md", "phi.safetensors", "card.json"):
                answer = get(service, f"/rayctsl/{card['id']}/resolve/main/{name}")
                assert answer.status_code in (200, 404), name
                assert "cluster's-token" not in answer.text
            weights = get(service, f"/initializations/{card['id']}/weights")
            assert "cluster's-token" not in weights.text
            assert get(service, f"/rayctsl/{card['id']}/resolve/main/README.md").status_code == 404
        (left_out,) = get(service, "/initializations?broken=true").json()["data"]
        assert left_out["id"] == f"initializations/{second.name}"


def paged(service: Instance, path: str) -> list[dict[str, Any]]:
    """What a list has on all its pages."""
    found, more = list[dict[str, Any]](), True
    while more:
        page = get(service, path + (f"&after={found[-1]['id']}" if found else "")).json()
        found, more = found + page["data"], page["has_more"]
        assert page["data"], "a page after which there should be more"
    return found


BAD_CARDS = {
    "list": {"tasks": 5},
    "null": {"created": None},
    "metrics": {"metrics": [1, 2]},
    "size": {"size": "large"},
    "checksum": {"sha256": "$(touch /tmp/owned)"},
    "date": {"created": "0001-01-01T00:00:00+23:59", "id": "early"},  # readable, but before time began elsewhere
}


def test_bad_cards_are_left_out_and_named(world: Path) -> None:
    good = json.loads((world / "storage" / "initializations" / "shifting-0" / "card.json").read_text())
    for name, change in BAD_CARDS.items():
        folder = world / "storage" / "initializations" / name
        folder.mkdir()
        (folder / "card.json").write_text(json.dumps({**good, **change}))
    nan = json.dumps({**good, "id": "nan", "metrics": {"final_loss": float("nan")}})
    raw = {"nan": nan, "deep": "[" * 100_000, "empty": "", "huge": '"' + "x" * 5_000_000 + '"'}
    for name, text in raw.items():
        folder = world / "storage" / "initializations" / name
        folder.mkdir()
        (folder / "card.json").write_text(text)
    with WarmInstance(world, "--address", NOBODY).running() as service:
        ids = {card["id"] for card in get(service, "/initializations").json()["data"]}
        assert ids == {"early", *(card for card in ids if card.split("-")[0] in ("shifting", "reptile", "fomaml"))}
        broken = paged(service, "/initializations?broken=true&limit=4")
        names = {f"initializations/{name}" for name in [*BAD_CARDS, *raw] if name != "date"}
        assert [card["id"] for card in broken] == sorted(names)
        assert all(card["reason"] and str(world) not in card["reason"] for card in broken)
        for path in ("/initializations", "/initializations/early", "/api/models/rayctsl/early", "/api/models"):
            answer = get(service, path)
            assert answer.status_code == 200, path
            json.loads(answer.text, parse_constant=pytest.fail)
        assert get(service, "/readyz").status_code == 200


def half_sent(service: Instance, count: int, start: bytes) -> list[socket.socket]:
    made = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", service.port), timeout=5)
            made.append(one)
            one.sendall(start)
    return made


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        b"POST /finetune HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
    ],
    ids=["silent", "head", "body"],
)
def test_half_sent_requests_do_not_shut_others_out(waiting_service: Instance, start: bytes) -> None:
    """One address may hold its share of the connections, and each only for a while."""
    held = half_sent(waiting_service, 1010, start)
    try:
        # Another address of this machine: the guests have used up theirs.
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=transport, timeout=10.0) as other:
            assert other.get(f"{waiting_service.url}/livez").status_code == 200
    finally:
        for one in held:
            one.close()


def test_slow_requests_are_cut_off(make_world: Callable[[], Path]) -> None:
    with WarmInstance(make_world(), "--address", NOBODY, "--request-seconds", "1").running() as service:
        slow = (
            b"GET /livez HTTP/1.1\r\n",
            b"POST /finetune HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{",
            b"POST /datasets?name=slow HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\nPK",
        )
        for start in slow:
            (one,) = half_sent(service, 1, start)
            one.settimeout(8.0)  # by default even a head has ten seconds
            with contextlib.suppress(ConnectionError):
                while one.recv(1000):
                    pass
            one.close()


def test_a_guest_sees_no_server_paths_and_none_of_the_validators_words(waiting: httpx.Client) -> None:
    headers = {"content-type": "application/json"}
    assert waiting.post("/finetune", content=b"{", headers=headers).json()["detail"] == "The body is not JSON."
    detail = waiting.post("/finetune", json={**SMALL, "alpha": 99}).json()["detail"]
    assert detail == "Learning rate must be at most 10.0."
    assert "pattern" not in waiting.get("/finetune/xyz").json()["detail"]
    assert waiting.post("/finetune", json=[]).json()["detail"] == "The body must be an object with keys and values."
    several = waiting.post("/finetune", json={"steps": "x", "flip": 3, "optimizer": "y"}).json()
    names = ("steps", "optimizer", "flip", "dataset")
    assert {error["where"] for error in several["errors"]} == {f"body.{name}" for name in names}
    for error in several["errors"]:
        assert "Input" not in error["message"]


def test_head_is_answered_wherever_get_is(waiting: httpx.Client) -> None:
    card = waiting.get("/initializations").json()["data"][0]["id"]
    for path in (
        "/",
        "/livez",
        "/readyz",
        "/initializations",
        f"/initializations/{card}",
        "/datasets",
        "/openapi.json",
    ):
        asked, head = waiting.get(path), waiting.head(path)
        assert (head.status_code, head.content) == (asked.status_code, b""), path
        assert head.headers["content-type"] == asked.headers["content-type"]
    weights = waiting.head(f"/initializations/{card}/weights")
    assert (weights.status_code, int(weights.headers["content-length"]) > 1000) == (200, True)


def test_host_is_compared_without_case(waiting_service: Instance) -> None:
    assert get(waiting_service, "/livez", headers={"host": "LOCALHOST"}).status_code == 200
    assert get(waiting_service, "/livez", headers={"host": "EVIL.example"}).status_code == 400


def test_v1_answers_with_v1_paths(waiting: httpx.Client) -> None:
    asked = waiting.post("/v1/finetune", json=SMALL)
    assert asked.headers["location"] == f"/v1/finetune/{asked.json()['id']}"
    assert waiting.post(f"{asked.headers['location']}/cancel").status_code == 202


def test_the_stop_with_open_streams_is_quick_and_quiet(world: Path) -> None:
    service = WarmInstance(world, "--address", NOBODY)
    service.start()
    with httpx.Client(base_url=service.url, trust_env=False) as http, contextlib.ExitStack() as stack:
        job = http.post("/finetune", json=SMALL).json()["id"]
        streams = [stack.enter_context(http.stream("GET", f"/finetune/{job}/events")) for _ in range(5)]
        lines = [stream.iter_lines() for stream in streams]  # one that nobody holds closes its connection
        assert {next(each) for each in lines} == {"retry: 2000"}
        assert service.stop() == 0
    log = (world / "service.log").read_text()
    assert "Traceback" not in log
    # By its own clock: how long a process takes to go away is the machine's business.
    begun, ended = (_second(log, words) for words in ("Shutting down", "Finished server process"))
    assert ended - begun < 1.0


def _second(log: str, words: str) -> float:
    (line,) = [line for line in log.splitlines() if words in line]
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB; skips where nothing may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_one_sentence_and_passes(small_disk: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "data")
    make_initialization(small_disk)
    (tmp_path / "storage").symlink_to(small_disk)
    with WarmInstance(tmp_path, "--address", NOBODY).running() as service:
        with (small_disk / "ballast").open("wb") as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(b"x" * 65536)
                ballast.flush()
        post = partial(httpx.post, f"{service.url}/finetune", json=SMALL, trust_env=False, verify=False)
        answers = [post() for _ in range(40)]
        full = [answer for answer in answers if answer.status_code == 507]
        assert full, "the database found room for every job"
        assert "disk is full" in full[0].json()["detail"]
        assert {answer.status_code for answer in answers} <= {202, 507}
        health = get(service, "/readyz").json()
        assert health["status"] == "degraded"
        assert any("disk is full" in reason for reason in health["reasons"])
        assert get(service, "/initializations").status_code == 200
        (small_disk / "ballast").unlink()
        assert post().status_code == 202
        taken = f"rayctsl_finetune_queue_depth {len(answers) - len(full) + 1:.1f}"
        wait_for(lambda: taken in get(service, "/metrics").text)  # the dispatcher takes its turns again
        assert not any("disk" in reason for reason in get(service, "/readyz").json()["reasons"])
        log = (tmp_path / "service.log").read_text()
        assert "Traceback" not in log
        assert log.count("a turn of the dispatcher failed") <= 1


def test_the_worker_is_told_of_an_absolute_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serve.settings import Settings

    monkeypatch.chdir(tmp_path)
    settings = Settings(storage="relative/storage", data_root="data", address=NOBODY)
    assert settings.storage == str(tmp_path / "relative" / "storage")
    assert settings.data_root == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_steps", -1),
        ("job_cpus", float("nan")),
        ("job_limit_seconds", -5.0),
        ("checkpoint_seconds", 0.0),
        ("job_gpus", -1.0),
        ("max_streams", 0),
        ("worker_idle_seconds", float("nan")),
        ("image_limit", -1),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, name: str, value: float) -> None:
    from serve.settings import Settings

    with pytest.raises(ValueError, match=f"{name.replace('_', '-')} must be between"):
        Settings(storage=str(tmp_path), address=NOBODY, **{name: value})
