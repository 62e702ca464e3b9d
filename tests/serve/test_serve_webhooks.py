"""Webhooks: signed, tried again until they are taken or given up, and never sent into a private network."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select, update

from serve.bench.instance import make_dataset, make_initialization
from serve.jobs.tables import JOBS, WEBHOOKS, open_database
from serve.service import Service
from serve.settings import Settings
from serve.webhooks import DELAYS, RefusedAddressError, Webhooks, check_url, new_client, resolve, sign
from tests.serve.applications import opened

SECRET = "a-secret-of-16-or-more"
Ask = Callable[..., httpx.Response]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[FastAPI]:
    make_dataset(tmp_path / "data")
    make_initialization(tmp_path / "storage")
    settings = Settings(
        storage=str(tmp_path / "storage"),
        data_root=str(tmp_path / "data"),
        address="http://127.0.0.1:1",
        webhooks="any",
    )
    with opened(settings) as made:
        yield made


class Receiver:
    """A small server that takes webhooks, and refuses the first ones."""

    def __init__(self, refusals: int = 0, refusal: int = 500):
        receiver, self.taken, self.refusals = self, list[tuple[dict[str, str], bytes]](), refusals

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.taken.append(({key.lower(): value for key, value in self.headers.items()}, body))
                self.send_response(refusal if len(receiver.taken) <= receiver.refusals else 204)
                self.send_header("location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *parts: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self.server.server_port}/hook?of=me"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def deliver(inside: Service, make: Callable[[], httpx.AsyncClient] | None = None) -> None:
    """One look of the sender."""

    async def once() -> None:
        quick = httpx.AsyncClient(trust_env=False, verify=False)  # no TLS here, which costs 30 ms
        async with make() if make else quick as client:
            for each in inside.webhooks.due():
                await inside.webhooks._deliver(client, each)

    asyncio.run(once())


def test_a_webhook_is_signed_and_tried_again_until_it_is_taken(inside: Service, ask: Ask) -> None:
    with Receiver(refusals=1) as receiver:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": receiver.url, "secret": SECRET}}
        job = ask("POST", "/finetune", json=body).json()
        assert SECRET not in json.dumps(job)
        deliver(inside)
        assert receiver.taken == []  # it has not ended
        ask("POST", f"/finetune/{job['id']}/cancel")
        deliver(inside)
        assert ask("GET", f"/finetune/{job['id']}").json()["webhook"] == {
            "status": "waiting",
            "attempts": 1,
            "error": "the answer was 500",
        }
        deliver(inside)
        assert len(receiver.taken) == 1  # not before its time
        with open_database(inside.settings.database_url).begin() as connection:
            connection.execute(update(WEBHOOKS).values(next_at=0))
        deliver(inside)
        deliver(inside)
        assert len(receiver.taken) == 2
        assert ask("GET", f"/finetune/{job['id']}").json()["webhook"]["status"] == "delivered"
        headers, content = receiver.taken[-1]
        message = f"{job['id']}.{headers['webhook-timestamp']}.".encode() + content
        wanted = base64.b64encode(hmac.new(SECRET.encode(), message, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"
        assert headers["host"] == receiver.url.split("/")[2]
        assert json.loads(content)["type"] == "finetune.cancelled"
        assert json.loads(content)["data"]["id"] == job["id"]
    assert ask("DELETE", f"/finetune/{job['id']}").status_code == 204
    assert inside.webhooks.find(job["id"]) is None


def test_a_redirect_is_not_followed(inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Receiver(refusals=1, refusal=307) as receiver:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": receiver.url, "secret": SECRET}}
        job = ask("POST", "/finetune", json=body).json()["id"]
        ask("POST", f"/finetune/{job}/cancel")
        deliver(inside, new_client)
        assert len(receiver.taken) == 1
    found = inside.webhooks.find(job)
    assert found
    assert (found.status, found.error) == ("waiting", "the answer was 307")


def test_a_webhook_that_nobody_takes_is_given_up(inside: Service, ask: Ask) -> None:
    body = {"dataset": "stripes", "steps": 2, "webhook": {"url": "http://127.0.0.1:9/", "secret": SECRET}}
    job = ask("POST", "/finetune", json=body).json()["id"]
    ask("POST", f"/finetune/{job}/cancel")
    for _ in range(len(DELAYS) + 3):
        deliver(inside)
        with open_database(inside.settings.database_url).begin() as connection:
            connection.execute(update(WEBHOOKS).values(next_at=0))
    found = inside.webhooks.find(job)
    assert found
    assert (found.status, found.attempts) == ("failed", len(DELAYS) + 1)


def test_a_receiver_is_asked_by_its_address_and_shows_the_certificate_of_its_name(inside: Service, ask: Ask) -> None:
    asked = list[httpx.Request]()

    def take(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(204)

    body = {"dataset": "stripes", "steps": 2, "webhook": {"url": "https://localhost:8443/hook", "secret": SECRET}}
    job = ask("POST", "/finetune", json=body).json()["id"]
    ask("POST", f"/finetune/{job}/cancel")
    deliver(inside, lambda: httpx.AsyncClient(transport=httpx.MockTransport(take)))
    (request,) = asked
    assert request.url.host in ("127.0.0.1", "::1")
    assert (request.url.port, request.url.path, request.headers["host"]) == (8443, "/hook", "localhost:8443")
    assert request.extensions["sni_hostname"] == "localhost"


@pytest.mark.parametrize(("leads", "tells"), [(True, 1), (False, 0)])
def test_only_the_service_that_leads_tells_of_jobs(
    leads: bool, tells: int, inside: Service, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.webhooks.LOOK_SECONDS", 0.0)
    looks = [leads]

    def ask_once() -> bool:
        if not looks:
            raise asyncio.CancelledError
        return looks.pop()

    async def run() -> None:
        async with asyncio.timeout(10):  # for a sender that does not ask
            await Webhooks(inside.store._engine, inside.store, "any", leads=ask_once).run()

    with Receiver() as receiver:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": receiver.url, "secret": SECRET}}
        job = ask("POST", "/finetune", json=body).json()["id"]
        ask("POST", f"/finetune/{job}/cancel")
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
        assert len(receiver.taken) == tells


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://10.0.0.8:8080/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[2002:a00:1::1]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "ftp://example.org/",
        "http://name:word@example.org/",
        "http://name@example.org/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://[half/",
        "http://exa mple.org/",
        "nothing",
    ],
)
def test_webhooks_never_lead_into_a_private_network(url: str) -> None:
    with pytest.raises(RefusedAddressError):
        check_url(url, private=False)


def test_a_name_of_a_private_address_is_refused_when_it_is_looked_up() -> None:
    check_url("https://localhost/", private=False)
    with pytest.raises(RefusedAddressError, match="private network"):
        resolve("localhost", 80, private=False)
    assert resolve("localhost", 80, private=True) in ("127.0.0.1", "::1")
    assert sign("k" * 16, "ft-1", 5, b"{}") != sign("k" * 16, "ft-1", 6, b"{}")


@pytest.mark.parametrize(
    ("webhooks", "url", "status"),
    [
        ("off", "https://example.org/", 409),
        ("public", "http://10.0.0.8/", 409),
        ("public", "https://example.org/", 202),
        ("any", "http://10.0.0.8/", 202),
    ],
)
def test_the_operator_says_who_may_be_told(
    webhooks: Literal["off", "public", "any"], url: str, status: int, inside: Service, ask: Ask
) -> None:
    inside.settings = replace(inside.settings, webhooks=webhooks)
    body = {"dataset": "stripes", "steps": 2, "webhook": {"url": url, "secret": SECRET}}
    answer = ask("POST", "/finetune", json=body)
    assert (answer.status_code, answer.json().get("type")) == (status, "webhook-refused" if status == 409 else None)


def test_a_name_that_leads_into_a_private_network_is_not_asked(inside: Service, ask: Ask) -> None:
    public = replace(inside.settings, webhooks="public")
    with Receiver() as receiver, opened(public) as application:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": receiver.url, "secret": SECRET}}
        job = ask("POST", "/finetune", json=body).json()["id"]
        ask("POST", f"/finetune/{job}/cancel")
        deliver(application.state.service)
        assert receiver.taken == []
    found = inside.webhooks.find(job)
    assert found
    assert "private network" in str(found.error)


def test_what_waits_while_webhooks_are_off_goes_out_when_they_are_on_again(inside: Service, ask: Ask) -> None:
    with Receiver() as receiver:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": receiver.url, "secret": SECRET}}
        job = ask("POST", "/finetune", json=body).json()["id"]
        ask("POST", f"/finetune/{job}/cancel")
        with opened(replace(inside.settings, webhooks="off")) as application:
            deliver(application.state.service)
        found = inside.webhooks.find(job)
        assert found
        assert (found.status, found.attempts, found.error) == ("waiting", 0, None)
        deliver(inside)
        assert len(receiver.taken) == 1
    assert ask("GET", f"/finetune/{job}").json()["webhook"]["status"] == "delivered"


def test_the_secret_is_kept_with_the_receiver_alone(inside: Service, ask: Ask) -> None:
    body = {"dataset": "stripes", "steps": 2, "webhook": {"url": "https://example.org/", "secret": SECRET}}
    job = ask("POST", "/finetune", json=body).json()["id"]
    with open_database(inside.settings.database_url).connect() as connection:
        assert SECRET not in str(connection.execute(select(JOBS)).all())
    found = inside.webhooks.find(job)
    assert found
    assert found.secret == SECRET


def test_a_refused_webhook_makes_no_job(inside: Service, ask: Ask) -> None:
    for webhook in ({"url": "ftp://x", "secret": SECRET}, {"url": "http://example.org", "secret": "short"}):
        assert ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2, "webhook": webhook}).status_code == 422
    nowhere = {"url": "http://[half", "secret": SECRET}
    refused = ask("POST", "/finetune", json={"dataset": "stripes", "steps": 2, "webhook": nowhere})
    assert (refused.status_code, refused.json()["type"]) == (409, "webhook-refused")
    assert ask("GET", "/finetune").json()["data"] == []


def test_another_receiver_makes_another_request(inside: Service, ask: Ask) -> None:
    def asked(url: str) -> httpx.Response:
        body = {"dataset": "stripes", "steps": 2, "webhook": {"url": url, "secret": SECRET}}
        return ask("POST", "/finetune", json=body, headers={"idempotency-key": "same"})

    made = asked("http://example.org/a").json()["id"]
    assert asked("http://example.org/b").json()["type"] == "idempotency-key-reused"
    assert asked("http://example.org/a").json()["id"] == made
