"""Errors as RFC 9457 problem+json: one sentence for people, a name for programs, never a traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from rayctsl.contract import JsonObject
from rayctsl.storage import is_full
from serve.explain import explain, sentence
from serve.schemas import FinetuneRequest

Responses = dict[int | str, JsonObject]  # what FastAPI is told of a route's answers
log = logging.getLogger("serve")
MEDIA_TYPE = "application/problem+json"

SCHEMA: JsonObject = {
    "title": "Problem",
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "properties": {
        "type": {"type": "string", "description": "A name for programs, or about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence for people"},
        "instance": {"type": "string", "description": "The path that was asked for"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "message": {"type": "string"}},
                "required": ["where", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}


CLOSE = {"connection": "close"}  # for a problem after which the rest of the body is not going to be read


class HttpProblem(Exception):
    """Raised anywhere in a request; becomes its answer."""

    def __init__(self, status: int, detail: str, kind: str = "about:blank", headers: Mapping[str, str] | None = None):
        super().__init__(detail)
        self.status, self.detail, self.kind, self.headers = status, detail, kind, dict(headers or {})


def problem_response(
    status: int,
    detail: str,
    *,
    kind: str = "about:blank",
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    body: JsonObject = {"type": kind, "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if instance is not None:
        body["instance"] = instance
    if errors:
        body["errors"] = errors
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA_TYPE)


def documented(*statuses: int) -> Responses:
    """The `responses` of a route: these problems, and those that any route may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    everywhere = (400, 401, 403, 405, 429, 500, 507)
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted({*everywhere, *statuses})
    }


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem."""

    @app.exception_handler(HttpProblem)
    async def on_problem(request: Request, error: HttpProblem) -> Response:
        return problem_response(
            error.status, error.detail, kind=error.kind, instance=request.url.path, headers=error.headers
        )

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == 405:
            headers = {"allow": ", ".join(allowed_methods(app, request))}
            detail = f"{request.method} is not possible here; {headers['allow']} is."
        elif error.status_code == 404:
            detail = "There is nothing at this path."
        return problem_response(error.status_code, detail, instance=request.url.path, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        # Only place and reason: what was sent is not sent back.
        found = [explain(item, FinetuneRequest) for item in error.errors()[:20]]
        details = [sentence(where, reason, FinetuneRequest) for where, reason in found]
        errors = [{"where": where, "message": text} for (where, _), text in zip(found, details, strict=True)]
        status = 400 if any(item["type"] == "json_invalid" for item in error.errors()) else 422
        return problem_response(status, details[0], instance=request.url.path, errors=errors)

    # The first two by themselves: what is left to the last is raised again, for the server to print once more.
    @app.exception_handler(OSError)
    @app.exception_handler(SQLAlchemyError)
    @app.exception_handler(Exception)
    async def on_failure(request: Request, error: Exception) -> Response:
        if is_full_disk(error):
            log.error("%s %s: the disk is full", request.method, request.url.path)
            return problem_response(
                507, FULL, kind="disk-full", instance=request.url.path, headers={"retry-after": "30"}
            )
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(500, "Something went wrong in the service; its log says more.")


FULL = "The service's disk is full, so nothing new can be stored; what is there can still be read."


def is_full_disk(error: BaseException) -> bool:
    """Whether a disk has no room left, told by a file or by the database."""
    text = str(error).lower()
    words = ("database or disk is full", "disk i/o error", "no space left")
    return is_full(error) or (isinstance(error, SQLAlchemyError) and any(each in text for each in words))


def allowed_methods(app: FastAPI, request: Request) -> list[str]:
    """The methods of all routes with this path: the router itself names those of the first only."""

    def works(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in app.routes)

    found = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if works(method)]
    return ["GET", "HEAD", *found[1:]] if "GET" in found else found
