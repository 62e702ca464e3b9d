"""What every request passes: counting, safe headers, who may ask, and how large a body may be. Plain ASGI."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.metrics import ServiceMetrics
from serve.problems import problem_response
from serve.settings import Settings, is_loopback

PAGE_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
OPEN_PATHS = ("/", "/livez", "/readyz", "/v1/livez", "/v1/readyz", "/favicon.ico")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def is_page(path: str) -> bool:
    return path in ("/", "/favicon.ico") or path.startswith("/static/")


class Observe:
    """Outermost: counts and times requests by route, and adds the headers that keep browsers safe."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics):
        self.app, self.metrics = app, metrics

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
                headers["content-security-policy"] = PAGE_POLICY if is_page(scope["path"]) else DATA_POLICY
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "no-referrer"
                headers["cross-origin-resource-policy"] = "same-origin"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in (*SAFE_METHODS, "POST") else "other"
            self.metrics.requests.labels(route, method, code).inc()
            self.metrics.latency.labels(route).observe(time.perf_counter() - started)


class Guard:
    """Lets in only who may: the right Host, no foreign page, the token when there is one."""

    def __init__(self, app: ASGIApp, settings: Settings):
        self.app, self.token = app, settings.token
        self.hosts = {"localhost", "127.0.0.1", "[::1]", settings.host, *settings.allowed_hosts}
        # A name that points to this machine may be anyone's (DNS rebinding); behind a token any name is fine.
        self.any_host = settings.token is not None and not settings.allowed_hosts and not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refuse(scope, Headers(scope=scope))
        if refusal is None:
            await self.app(scope, receive, send)
            return
        status, detail, headers = refusal
        await problem_response(status, detail, instance=scope["path"], headers=headers)(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers) -> tuple[int, str, dict[str, str]] | None:
        host = headers.get("host", "")
        if not self.any_host and host.rsplit(":", 1)[0] not in self.hosts and host not in self.hosts:
            return 400, "The Host header names another host than this service.", {}
        origin = headers.get("origin")
        if scope["method"] not in SAFE_METHODS and origin is not None and urlsplit(origin).netloc != host:
            return 403, "Pages of other sites may not change anything here.", {}
        if self.token is None or scope["path"] in OPEN_PATHS or is_page(scope["path"]):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return None
        return 401, "This needs the service's token: Authorization: Bearer …", {"www-authenticate": "Bearer"}


class BodyLimit:
    """Reads a body whole before anyone works on it, up to a limit by path."""

    def __init__(self, app: ASGIApp, limit_of: Callable[[str], int]):
        self.app, self.limit_of = app, limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope["path"])
        length = Headers(scope=scope).get("content-length", "")
        body, too_large = bytearray(), length.isdigit() and int(length) > limit
        while not too_large:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            too_large = len(body) > limit
            if not message.get("more_body", False):
                break
        if too_large:
            headers = {"connection": "close"}  # the rest of the body is not going to be read
            answer = problem_response(413, f"The body may have {limit} bytes.", instance=scope["path"], headers=headers)
            await answer(scope, receive, send)
            return
        await self.app(scope, _replay(bytes(body), receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
