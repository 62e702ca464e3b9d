"""One connection to a service: asking again where that is safe, pages, event streams, resumed downloads."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self, TypedDict, Unpack
from urllib.parse import quote

import httpx

from rayctsl.contract import Json, JsonObject

DEFAULT_URL = "http://127.0.0.1:8000"
RETRIES = 5
PATIENCE_SECONDS = 60.0  # at a time, whatever a service says


class Content(TypedDict, total=False):
    """What a request carries, in httpx's words."""

    params: Mapping[str, str | float]
    json: Mapping[str, Json]
    content: bytes
    files: list[tuple[str, tuple[str, bytes, str]]]
    headers: Mapping[str, str]
    timeout: float


class ServiceError(ValueError):
    """The service refused, with its own sentence.

    Args:
        status: the HTTP status, 0 when it was not reached.
        kind: the problem's name for programs, if it has one.
    """

    def __init__(self, message: str, status: int = 0, kind: str = ""):
        super().__init__(message)
        self.status, self.kind = status, kind

    @property
    def exit_code(self) -> int:
        return 2 if 400 <= self.status < 500 else 1


class ServiceConnection:
    """Talks to one service.

    Args:
        token: what the service's RAYCTSL_TOKEN holds, or a key, if it wants one.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the service's address must begin with http:// or https://, unlike {url!r}")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _fetch(self, path: str, partial: Path, on_bytes: Callable[[int, int], None] | None) -> str:
        """Add what is missing to the partial file; returns the checksum that it should have."""
        etag_file = partial.with_name(partial.name + ".etag")
        there = partial.stat().st_size if partial.exists() and etag_file.exists() else 0
        headers = {"Range": f"bytes={there}-", "If-Range": etag_file.read_text()} if there else {}
        with self._http.stream("GET", path, headers=headers) as answer:
            if answer.status_code == 416:  # nothing is missing
                etag_file.unlink()
                return answer.headers["etag"].strip('"')
            if answer.status_code not in (200, 206):
                answer.read()
                check(answer)
            etag_file.write_text(answer.headers["etag"])
            done = there if answer.status_code == 206 else 0
            total = done + int(answer.headers["content-length"])
            with partial.open("ab" if answer.status_code == 206 else "wb") as file:
                for block in answer.iter_raw():
                    file.write(block)
                    done += len(block)
                    if on_bytes:
                        on_bytes(done, total)
        etag_file.unlink()
        return answer.headers["etag"].strip('"')

    def _stream(self, path: str, seen: int) -> Iterator[tuple[str, int, JsonObject]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(seen)} if seen else {})}
        with self._http.stream("GET", path, headers=headers, timeout=httpx.Timeout(30.0, read=60.0)) as answer:
            if answer.status_code != 200:
                answer.read()
                check(answer)
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if "data" in fields:
                    yield fields.get("event", "message"), int(fields.get("id", 0)), json.loads(fields["data"])
                fields = {}

    def _pages(self, path: str, filters: dict[str, str | int]) -> Iterator[JsonObject]:
        query: dict[str, str | int] = {"limit": 100, **filters}
        while True:
            page = self._ask("GET", path, params=query).json()
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["data"][-1]["id"]

    def _ask(self, method: str, path: str, *, retry: bool = False, **options: Unpack[Content]) -> httpx.Response:
        for attempt in range(RETRIES):
            try:
                answer = self._http.request(method, path, **options)
                seconds = _asked_to_wait(answer) if method == "GET" else None
                if seconds is None or attempt == RETRIES - 1:
                    break
                time.sleep(seconds)
            except httpx.TransportError as error:
                if attempt == RETRIES - 1 or not (retry or method == "GET"):
                    raise ServiceError(f"the service at {self.url} does not answer: {error}") from None
                time.sleep(0.2 * 2**attempt)
        check(answer)
        return answer


def _asked_to_wait(answer: httpx.Response) -> float | None:
    """Seconds after which a busy service may be asked again; None if it does not say so."""
    text = answer.headers.get("retry-after", "")
    if answer.status_code not in (429, 503) or not text.isdecimal():
        return None
    return min(float(text), PATIENCE_SECONDS)


def check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    try:
        problem = answer.json()
        detail, kind = problem["detail"], problem.get("type", "")
    except (ValueError, KeyError, TypeError):
        detail, kind = f"the service answers {answer.status_code}", ""
    raise ServiceError(str(detail), answer.status_code, kind)


def quoted(identifier: str) -> str:
    return quote(identifier, safe="")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
