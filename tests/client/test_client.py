"""The client and its command against a real service whose jobs wait, and against servers that break off."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from rayctsl.client import Client, ServiceError, sending
from rayctsl.client.connection import RETRIES
from rayctsl.commands.client import main
from rayctsl.contract import JsonObject
from serve.bench.instance import Instance, make_dataset, make_initialization
from tests.serve.warm import WarmInstance

TOKEN = "a-token-for-the-tests"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("client")
    make_dataset(folder / "data")
    for seed in range(3):
        make_initialization(folder / "storage", seed)
    with WarmInstance(folder, "--address", "http://127.0.0.1:1", token=TOKEN).running() as instance:
        yield instance


@pytest.fixture
def client(service: Instance) -> Iterator[Client]:
    with Client(service.url, TOKEN) as opened:
        yield opened


@pytest.fixture
def command(service: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCTSL_URL", service.url)
    monkeypatch.setenv("RAYCTSL_TOKEN", TOKEN)


def test_lists_pass_over_pages(client: Client) -> None:
    ids = [card["id"] for card in client.initializations(limit=2)]
    assert len(ids) == len(set(ids)) == 3
    assert client.initialization(ids[0])["id"] == ids[0]
    assert "stripes" in [dataset["name"] for dataset in client.datasets()]


def test_download_is_verified(client: Client, service: Instance, tmp_path: Path) -> None:
    card = next(client.initializations())
    path = client.download(card["id"], tmp_path)
    assert path == tmp_path / f"{card['id']}.safetensors"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == card["sha256"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_job_is_accepted_found_and_cancelled(client: Client) -> None:
    job = client.finetune("stripes", steps=2, idempotency_key="k1")
    assert client.finetune("stripes", steps=2, idempotency_key="k1")["id"] == job["id"]
    assert job["id"] in [one["id"] for one in client.jobs(status="queued")]
    assert client.cancel(job["id"])["status"] == "cancelled"
    assert [event["event"] for event in client.events(job["id"])][-1] == "end"
    assert client.wait(job["id"])["status"] == "cancelled"
    with pytest.raises(ServiceError, match="it has no model") as caught:
        client.download(job["id"])
    assert caught.value.status == 409


def test_refusals_are_the_service_s_sentence(client: Client, service: Instance) -> None:
    with pytest.raises(ServiceError, match="did you mean 'stripes'"):
        client.finetune("stripe")
    with pytest.raises(ServiceError, match="There is no initialization"):
        client.initialization("nothing")
    with pytest.raises(ServiceError) as caught, Client(service.url, "wrong") as stranger:
        stranger.datasets()
    assert caught.value.status == 401
    with pytest.raises(ValueError, match="http://"):
        Client("localhost:8000")


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(0, 1), (400, 2), (404, 2), (429, 2), (500, 1), (503, 1)])
def test_a_command_says_whose_fault_it_was(status: int, code: int) -> None:
    assert ServiceError("no", status).exit_code == code


class Deaf(BaseHTTPRequestHandler):
    """Hangs up on the first who asks."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.command)
        self.close_connection = True
        if len(self.asked) > 1:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


def test_only_what_changes_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deaf, "asked", [])
    with listening(Deaf) as url, Client(url) as client:
        client.initialization("any")
        assert Deaf.asked == ["GET", "GET"]
        Deaf.asked.clear()
        with pytest.raises(ServiceError, match="does not answer"):
            client.cancel("any")
        assert Deaf.asked == ["POST"]


class Unreliable(BaseHTTPRequestHandler):
    """Breaks off after a few bytes, the first two times."""

    content = bytes(range(256)) * 40
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("etag", self.etag)
        self.send_header("content-length", str(len(self.content) - start))
        self.end_headers()
        rest = self.content[start:]
        self.wfile.write(rest[:3000] if len(self.asked) < 3 else rest)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def unreliable() -> Iterator[str]:
    Unreliable.asked = []
    with listening(Unreliable) as url:
        yield url


def test_download_goes_on_where_it_broke_off(unreliable: str, tmp_path: Path) -> None:
    with Client(unreliable) as client:
        path = client.download("some-id", tmp_path / "file")
    assert path.read_bytes() == Unreliable.content
    assert Unreliable.asked == [None, "bytes=3000-", "bytes=6000-"]


def test_damaged_download_is_thrown_away(unreliable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unreliable, "etag", '"0000"')
    with Client(unreliable) as client, pytest.raises(ServiceError, match="damaged"):
        client.download("some-id", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_long_job_is_followed_however_often_the_connection_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only breaks without anything new in between count."""
    seen: list[int] = []

    def stream(self: Client, path: str, after: int) -> Iterator[tuple[str, int, dict[str, int]]]:
        seen.append(after)
        yield ("end" if after == 3 * RETRIES else "point"), after + 1, {}
        raise httpx.ReadError("cut")

    monkeypatch.setattr(Client, "_stream", stream)
    monkeypatch.setattr("rayctsl.client.time.sleep", lambda seconds: None)
    with Client("http://127.0.0.1:1") as client:
        assert len(list(client.events("some-id"))) == 3 * RETRIES + 1
        assert seen == list(range(3 * RETRIES + 1))
        monkeypatch.setattr(Client, "_stream", lambda *asked: (_ for _ in ()).throw(httpx.ConnectError("refused")))
        with pytest.raises(ServiceError, match="is lost: refused"):
            list(client.events("some-id"))


def test_words_of_progress_do_not_make_events_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no number of their own."""
    seen: list[int] = []

    def stream(self: Client, path: str, after: int) -> Iterator[tuple[str, int, dict[str, int]]]:
        seen.append(after)
        if len(seen) == 1:
            yield "point", 1, {}
            yield "status", 0, {}
            raise httpx.ReadError("cut")
        yield "end", 2, {}

    monkeypatch.setattr(Client, "_stream", stream)
    monkeypatch.setattr("rayctsl.client.time.sleep", lambda seconds: None)
    with Client("http://127.0.0.1:1") as client:
        assert [event["event"] for event in client.events("some-id")] == ["point", "status", "end"]
    assert seen == [0, 1]


@pytest.mark.usefixtures("command")
def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["list", "--method", "shifting"]) == 0
    identifier = capsys.readouterr().out.splitlines()[0].split()[0]
    assert main(["download", identifier, "--out", str(tmp_path)]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()
    assert main(["datasets"]) == 0
    assert "stripes" in capsys.readouterr().out
    assert main(["show", identifier]) == 0
    assert f'"id": "{identifier}"' in capsys.readouterr().out
    assert main(["finetune", "stripes", "--steps", "2", "--no-wait", "--label", "a\x1bb"]) == 0
    job = capsys.readouterr().out.strip()
    assert main(["jobs"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(job))
    assert "\x1b" not in line
    assert main(["cancel", job]) == 0
    assert capsys.readouterr().out == f"{job} cancelled\n"
    assert main(["follow", job]) == 1
    assert "cancelled" in capsys.readouterr().err


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["finetune", "stripe"], 2),
        (["finetune", "stripes", "--steps", "0"], 2),
        (["show", "nothing"], 2),
        (["--url", "nonsense", "list"], 2),
        (["--url", "http://127.0.0.1:1", "cancel", "ft-0"], 1),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> None:
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("rayctsl.client: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["nonsense"], [], ["finetune", "x", "--steps", "many"]])
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("there", "start"),
    [
        ({"status": "receiving", "received": 500, "total": 1000}, 500),
        ({"status": "receiving", "received": 500, "total": 900}, 0),  # of another archive
        ({"status": "failed", "received": 1000, "total": 1000}, 0),
    ],
)
def test_only_the_same_archive_is_sent_on(there: JsonObject, start: int) -> None:
    assert sending._received(there, 1000) == start
