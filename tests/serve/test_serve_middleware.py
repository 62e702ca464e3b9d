"""Who may ask, for every route and method that there is: without the token nothing but the page and its health.

And how much may be sent, whatever is said of its length."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from serve.middleware import LARGE_BODIES, SMALL_BODY, BodyLimit
from serve.settings import Settings
from tests.serve.applications import opened

TOKEN = "correct-horse-battery"
OPEN = {"/", "/favicon.ico", "/docs", "/openapi.json", "/livez", "/readyz", "/v1/livez", "/v1/readyz"}
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def application(tmp_path: Path):
    with opened(Settings(storage=str(tmp_path), address="http://127.0.0.1:1", token=TOKEN)) as made:
        yield made


def paths_of(application) -> set[str]:
    """Every path that the application answers, with and without /v1, an x for whatever varies."""
    routers = [getattr(route, "original_router", None) for route in application.routes]
    routes = [route for router in routers if router is not None for route in router.routes]
    plain = {
        re.sub(r"\{[^}]*\}", "x", route.path) for route in [*application.routes, *routes] if hasattr(route, "path")
    }
    return plain | {f"/v1{path}" for path in plain}


def test_no_route_and_no_method_without_the_token(application):
    closed = {path for path in paths_of(application) if path not in OPEN and not path.startswith("/static")}
    assert {"/finetune", "/v1/finetune/x/weights", "/metrics"} <= closed

    async def ask() -> dict[tuple[str, str], int]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return {
                (method, path): (await client.request(method, path)).status_code
                for path in sorted(closed)
                for method in METHODS
            }

    assert {asked: status for asked, status in asyncio.run(ask()).items() if status != 401} == {}


@pytest.mark.parametrize("given", ["", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"])
def test_almost_the_token_is_not_the_token(application, given):
    async def ask() -> int:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return (await client.get("/finetune", headers={"authorization": given})).status_code

    assert asyncio.run(ask()) == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    ("named", "status"),
    [("Rayctsl.example:8000", 200), ("rayctsl.example", 200), ("[::1]:8000", 200), ("evil.example:8000", 400)],
)
def test_who_names_its_hosts_is_found_by_no_other_name(host, named, status, tmp_path):
    settings = Settings(
        storage=str(tmp_path),
        address="http://127.0.0.1:1",
        host=host,
        token=TOKEN,
        allowed_hosts=("rayctsl.Example",),
    )

    async def ask() -> int:
        with opened(settings) as made:
            transport = httpx.ASGITransport(made)
            shown = {"host": named, "authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return (await client.get("/finetune", headers=shown)).status_code

    assert asyncio.run(ask()) == status


async def sent(application: BodyLimit, blocks: AsyncIterator[bytes], *, path: str = "/") -> int:
    """The status of the answer to a body that comes block by block, without saying how long it will be."""
    codes = list[int]()

    async def receive() -> Message:
        block = await anext(blocks, None)
        return {"type": "http.request", "body": block or b"", "more_body": block is not None}

    async def send(message: Message) -> None:
        codes.append(message.get("status", 0))

    await application({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    return codes[0]


async def taken(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await PlainTextResponse("taken")(scope, receive, send)


def test_a_body_that_does_not_say_its_length_is_cut_off_at_the_limit():
    given = list[int]()

    async def endless() -> AsyncIterator[bytes]:
        for number in range(1000):
            given.append(number)
            yield bytes(10)

    assert asyncio.run(sent(BodyLimit(taken, lambda path: 100), endless())) == 413
    assert len(given) == 11


def test_few_large_bodies_are_read_at_once_and_small_ones_always():
    limits = {"/large": SMALL_BODY + 1, "/small": SMALL_BODY}

    async def ask() -> tuple[int, int, list[int], int]:
        application, ended = BodyLimit(taken, limits.get), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x"
            await ended.wait()

        async def quick() -> AsyncIterator[bytes]:
            yield b"x"

        reading = [asyncio.create_task(sent(application, slow(), path="/large")) for _ in range(LARGE_BODIES)]
        while application.large < LARGE_BODIES:
            await asyncio.sleep(0)
        refused = await sent(application, quick(), path="/large")
        small = await sent(application, quick(), path="/small")
        ended.set()
        return refused, small, await asyncio.gather(*reading), await sent(application, quick(), path="/large")

    assert asyncio.run(ask()) == (503, 200, [200] * LARGE_BODIES, 200)


def test_a_large_body_that_is_refused_gives_its_place_back():
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(SMALL_BODY)

    async def ask() -> list[int]:
        application = BodyLimit(taken, lambda path: SMALL_BODY + 1)
        return [await sent(application, endless()) for _ in range(LARGE_BODIES + 1)]

    assert asyncio.run(ask()) == [413] * (LARGE_BODIES + 1)
