"""Who may ask, for every route and method that there is: without the token nothing but the page and its health."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

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
