"""The page and its static files, read once at the start: no path of a request is ever opened."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from serve.problems import HttpProblem

WEB = Path(__file__).parent.parent / "web"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
EMPTY = b"<!doctype html><title>rayctsl</title><p>The API is at <a href=/openapi.json>/openapi.json</a>.\n"


def build_router(web: Path = WEB) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    paths = [path for path in sorted(web.rglob("*")) if path.is_file()]
    files = {path.relative_to(web).as_posix(): (path.read_bytes(), _kind(path)) for path in paths}

    def answer(request: Request, name: str) -> Response:
        if name not in files:
            raise HttpProblem(404, "There is nothing at this path.")
        content, kind = files[name]
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    @router.get("/")
    async def page(request: Request) -> Response:
        if "index.html" not in files:
            return Response(EMPTY, media_type="text/html")
        return answer(request, "index.html")

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        return answer(request, "docs.html")

    @router.get("/static/{name:path}")
    async def static(request: Request, name: str) -> Response:
        return answer(request, name)

    return router


def _kind(path: Path) -> str:
    return TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
