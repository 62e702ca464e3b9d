"""What every request passes: counting, safe headers, who may ask, and how large a body may be. Plain ASGI."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.access import AccessLog
from serve.keys import NOBODY_IN_PARTICULAR, Caller, KeyStore
from serve.metrics import ServiceMetrics
from serve.problems import CLOSE, HttpProblem, problem_response
from serve.settings import Settings, is_loopback

PAGE_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
OPEN_PATHS = ("/livez", "/readyz", "/v1/livez", "/v1/readyz", "/openapi.json")
PAGES = ("/", "/docs", "/favicon.ico")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
QUIET_PATHS = ("/livez", "/readyz", "/v1/livez", "/v1/readyz", "/metrics")  # asked for every few seconds
BODY_SECONDS = 30.0
LARGE_BODIES = 16  # read at the same time
SMALL_BODY = 64 * 1024


def is_page(path: str) -> bool:
    return path in PAGES or path.startswith("/static/")


def _policy(path: str) -> str:
    return PAGE_POLICY if is_page(path) else DATA_POLICY


class Observe:
    """Outermost: counts, times and logs requests, and adds the headers that keep browsers safe."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics, access: AccessLog):
        self.app, self.metrics, self.access = app, metrics, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, code = time.perf_counter(), 500

        async def send_on(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = _policy(scope["path"])
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "no-referrer"
                headers["cross-origin-resource-policy"] = "same-origin"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in (*SAFE_METHODS, "POST", "DELETE") else "other"
            self.metrics.requests.labels(route, method, code).inc()
            self.metrics.latency.labels(route).observe(seconds)
            if scope["path"] not in QUIET_PATHS and not is_page(scope["path"]):
                self.access.add(_entry(scope, code, seconds))


def _entry(scope: Scope, code: int, seconds: float) -> dict[str, object]:
    caller: Caller | None = scope.get("caller")
    entry: dict[str, object] = {
        "at": round(time.time(), 3),
        "who": caller.name if caller else None,
        "address": (scope.get("client") or ("",))[0],
        "method": scope["method"][:16],
        "path": scope["path"][:300],
        "status": code,
        "seconds": round(seconds, 4),
    }
    return entry if scope["method"] in SAFE_METHODS else {**entry, "audit": True}


class Guard:
    """Lets in only who may: the right Host, no foreign page, a key with the right scope when there are keys."""

    def __init__(self, app: ASGIApp, settings: Settings, keys: KeyStore):
        self.app, self.keys = app, keys
        names = {"localhost", "127.0.0.1", "[::1]", settings.host, *settings.allowed_hosts}
        self.hosts = {name.lower() for name in names}
        # A name that points to this machine may be anyone's (DNS rebinding); behind a token any name is fine.
        self.any_host = not is_loopback(settings.host) and not settings.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope, Headers(scope=scope))
        except HttpProblem as problem:
            answer = problem_response(
                problem.status, problem.detail, kind=problem.kind, instance=scope["path"], headers=problem.headers
            )
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if not self.any_host and host.rsplit(":", 1)[0] not in self.hosts and host not in self.hosts:
            raise HttpProblem(400, "The Host header names another host than this service.")
        origin = headers.get("origin")
        if scope["method"] not in SAFE_METHODS and origin is not None and urlsplit(origin).netloc.lower() != host:
            raise HttpProblem(403, "Pages of other sites may not change anything here.")
        if scope["path"] in OPEN_PATHS or is_page(scope["path"]):
            return
        scope["caller"] = caller = self._caller(headers)
        need = "read" if scope["method"] in SAFE_METHODS else "finetune"
        if not caller.may(need):  # type: ignore[arg-type]
            raise HttpProblem(403, f"This needs a key with the scope '{need}'.", "scope-missing")
        if wait := self.keys.wait_for(caller):
            detail = f"This key may ask {caller.requests_per_minute} times a minute; wait a moment."
            raise HttpProblem(429, detail, "too-many-requests", {"retry-after": str(math.ceil(wait))})

    def _caller(self, headers: Headers) -> Caller:
        if not self.keys.wanted:
            return NOBODY_IN_PARTICULAR
        scheme, _, given = headers.get("authorization", "").partition(" ")
        caller = self.keys.find(given.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            detail = "This needs the service's token or a key: Authorization: Bearer …"
            raise HttpProblem(401, detail, headers={"www-authenticate": "Bearer"})
        return caller


class BodyLimit:
    """Reads a body whole before anyone works on it: up to a limit by path, in bounded time, few large ones at once.

    A limit of None leaves the body to the route, which reads it piece by piece.
    """

    def __init__(self, app: ASGIApp, limit_of: Callable[[str], int | None], seconds: float = BODY_SECONDS):
        self.app, self.limit_of, self.seconds, self.large = app, limit_of, seconds, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = None
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            limit = self.limit_of(scope["path"])
        if limit is None:
            await self.app(scope, receive, send)
            return
        large = limit > SMALL_BODY
        self.large += large
        try:
            if large and self.large > LARGE_BODIES:
                raise HttpProblem(503, "Too many images are being sent; try again in a moment.", "busy", RETRY)
            async with asyncio.timeout(self.seconds):
                blocks = await self._read(scope, receive, limit)
        except TimeoutError:
            problem = HttpProblem(408, f"The body did not come within {self.seconds:.0f} s.", headers=CLOSE)
            await _refuse(problem, scope, receive, send)
            return
        except HttpProblem as problem:
            await _refuse(problem, scope, receive, send)
            return
        finally:
            self.large -= large
        if blocks is not None:
            await self.app(scope, _replay(blocks, receive), send)

    async def _read(self, scope: Scope, receive: Receive, limit: int) -> list[bytes] | None:
        length = Headers(scope=scope).get("content-length", "")
        blocks, size = list[bytes](), 0
        too_large = length.isdigit() and int(length) > limit
        while not too_large:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            blocks.append(message.get("body", b""))
            size += len(blocks[-1])
            too_large = size > limit
            if not message.get("more_body", False):
                break
        if too_large:
            raise HttpProblem(413, f"The body may have {limit} bytes.", headers=CLOSE)
        return blocks


RETRY = {"retry-after": "2", **CLOSE}


async def _refuse(problem: HttpProblem, scope: Scope, receive: Receive, send: Send) -> None:
    answer = problem_response(
        problem.status, problem.detail, kind=problem.kind, instance=scope["path"], headers=problem.headers
    )
    await answer(scope, receive, send)


def _replay(blocks: list[bytes], receive: Receive) -> Receive:
    """The body block by block, with a turn for everybody else before each: whoever reads it works on them."""
    left = deque(blocks)

    async def replay() -> Message:
        if not left:
            return await receive()
        await asyncio.sleep(0)
        return {"type": "http.request", "body": left.popleft(), "more_body": bool(left)}

    return replay


class HeadAsGet:
    """Answers HEAD wherever GET is answered: the same work, without the body."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
            elif not message.get("more_body", False):
                await send({"type": "http.response.body"})

        asked = {**scope, "method": "GET", "is_head": True, "extensions": {}}
        try:
            await self.app(asked, receive, send_head)
        finally:
            scope["route"] = asked.get("route")  # for the figures
