"""A client of the service, and the command `python -m rayctsl.client`.

Downloads resume where they broke off and are verified; a job is followed by its events, across interruptions.

Example: Client("http://127.0.0.1:8000").finetune("digits", steps=200)["id"]
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
ENDED = ("succeeded", "failed", "cancelled")
RETRIES = 5


class ServiceError(ValueError):
    """The service refused, with its own sentence; `status` is the HTTP status, 0 when it was not reached."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status

    @property
    def exit_code(self) -> int:
        return 2 if 400 <= self.status < 500 else 1


class Client:
    """Talks to one service.

    Args:
        token: what the service's RAYCTSL_TOKEN holds, if it has one.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the service's address must begin with http:// or https://, unlike {url!r}")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=30.0)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def initializations(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Every card, page by page. Example: client.initializations(method="reptile", sort="id")"""
        return self._pages("/initializations", filters)

    def initialization(self, identifier: str) -> dict[str, Any]:
        return self._ask("GET", f"/initializations/{_quoted(identifier)}").json()

    def datasets(self) -> list[dict[str, Any]]:
        return self._ask("GET", "/datasets").json()["data"]

    def jobs(self, **filters: Any) -> Iterator[dict[str, Any]]:
        return self._pages("/finetune", filters)

    def job(self, identifier: str) -> dict[str, Any]:
        return self._ask("GET", f"/finetune/{_quoted(identifier)}").json()

    def cancel(self, identifier: str) -> dict[str, Any]:
        return self._ask("POST", f"/finetune/{_quoted(identifier)}/cancel").json()

    def finetune(self, dataset: str, *, idempotency_key: str | None = None, **options: Any) -> dict[str, Any]:
        """Ask for a job and return it, queued; sending it again after a broken connection makes no second one.

        Args:
            options: as in the service's FinetuneRequest: initialization, steps, train_size, seed, …
        """
        key = idempotency_key or os.urandom(16).hex()
        headers = {"Idempotency-Key": key}
        return self._ask("POST", "/finetune", json={"dataset": dataset, **options}, headers=headers, retry=True).json()

    def predict(self, identifier: str, image: str | Path | bytes) -> list[dict[str, Any]]:
        """Class names with probabilities, likeliest first."""
        content = image if isinstance(image, bytes) else Path(image).read_bytes()
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/finetune/{_quoted(identifier)}/predict"
        return self._ask("POST", path, content=content, headers=headers).json()["classes"]

    def download(
        self, identifier: str, target: str | Path | None = None, on_bytes: Callable[[int, int], None] | None = None
    ) -> Path:
        """Fetch an initialization's weights, or a job's when the id is a job's; resumed and verified.

        Args:
            target: a file, or a folder to put `<id>.safetensors` in; default the current folder.
            on_bytes: called with (bytes so far, bytes in all).
        """
        kind = "finetune" if identifier.startswith("ft-") else "initializations"
        final = Path(target or ".")
        final = final / f"{Path(identifier).name}.safetensors" if final.is_dir() else final
        partial = final.with_name(final.name + ".part")
        for attempt in range(RETRIES):
            try:
                checksum = self._fetch(f"/{kind}/{_quoted(identifier)}/weights", partial, on_bytes)
                break
            except httpx.TransportError as error:
                if attempt == RETRIES - 1:
                    raise ServiceError(f"the download broke off: {error}; run it again to go on") from None
                time.sleep(0.5 * 2**attempt)
        if (found := _sha256(partial)) != checksum:
            partial.unlink()
            raise ServiceError(f"the download is damaged: its sha256 is {found}, the service says {checksum}")
        os.replace(partial, final)
        return final

    def events(self, identifier: str) -> Iterator[dict[str, Any]]:
        """A job's events up to its end, each with `event`; taken up again where a connection broke."""
        seen, failures = 0, 0
        while True:
            try:
                for name, number, data in self._stream(f"/finetune/{_quoted(identifier)}/events", seen):
                    seen, failures = max(seen, number), 0
                    yield {"event": name, **data}
                    if name == "end":
                        return
            except httpx.TransportError as error:
                failures += 1
                if failures > RETRIES:
                    raise ServiceError(f"the connection to {self.url} is lost: {error}") from None
            time.sleep(min(5.0, 0.5 * 2**failures))

    def wait(self, identifier: str, on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Follow a job to its end and return it."""
        for event in self.events(identifier):
            if on_event:
                on_event(event)
        return self.job(identifier)

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
                _check(answer)
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

    def _stream(self, path: str, seen: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(seen)} if seen else {})}
        with self._http.stream("GET", path, headers=headers, timeout=httpx.Timeout(30.0, read=60.0)) as answer:
            if answer.status_code != 200:
                answer.read()
                _check(answer)
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if "data" in fields:
                    yield fields.get("event", "message"), int(fields.get("id", 0)), json.loads(fields["data"])
                fields = {}

    def _pages(self, path: str, filters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        query = {"limit": 100, **filters}
        while True:
            page = self._ask("GET", path, params=query).json()
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["data"][-1]["id"]

    def _ask(self, method: str, path: str, *, retry: bool = False, **options: Any) -> httpx.Response:
        for attempt in range(RETRIES):
            try:
                answer = self._http.request(method, path, **options)
                break
            except httpx.TransportError as error:
                if attempt == RETRIES - 1 or not (retry or method == "GET"):
                    raise ServiceError(f"the service at {self.url} does not answer: {error}") from None
                time.sleep(0.2 * 2**attempt)
        _check(answer)
        return answer


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the service answers {answer.status_code}"
    raise ServiceError(str(detail), answer.status_code)


def _quoted(identifier: str) -> str:
    from urllib.parse import quote

    return quote(identifier, safe="")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
