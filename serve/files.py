"""A file as an answer: ETag by checksum, 304, one Range with If-Range, large blocks."""

from __future__ import annotations

import os
import re

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve.metrics import ServiceMetrics
from serve.problems import problem_response

BLOCK = 1024 * 1024
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class FileAnswer(Response):
    """Sends a file that never changes under its checksum.

    Args:
        file: its descriptor, which this answer closes.
    """

    def __init__(
        self,
        file: int,
        checksum: str,
        filename: str,
        *,
        media_type: str = "application/octet-stream",
        headers: dict[str, str] | None = None,
        metrics: ServiceMetrics | None = None,
    ):
        self.file, self.etag, self.metrics = file, f'"{checksum}"', metrics
        self.status_code, self.background = 200, None
        self.media_type = media_type
        self.init_headers({
            "etag": self.etag,
            "accept-ranges": "bytes",
            "cache-control": "no-cache",
            "content-disposition": f'attachment; filename="{filename}"',
            **(headers or {}),
        })  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            os.close(self.file)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked, file = Headers(scope=scope), self.file
        if self._is_known(asked.get("if-none-match")):
            kept = [(name, value) for name, value in self.raw_headers if name not in (b"content-type",)]
            await send({"type": "http.response.start", "status": 304, "headers": kept})
            await send({"type": "http.response.body"})
            return
        size = os.fstat(file).st_size
        start, stop = 0, size
        wanted = self._range(asked, size)
        if wanted is not None:
            start, stop = wanted
            if start >= size:
                headers = {"content-range": f"bytes */{size}", "etag": self.etag}
                answer = problem_response(416, f"The file has {size} bytes.", headers=headers)
                await answer(scope, receive, send)
                return
            self.status_code = 206
            self.headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
        self.headers["content-length"] = str(stop - start)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope.get("is_head") or scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
            return
        await self._send_body(file, start, stop, scope, send)
        if self.metrics:
            self.metrics.downloaded.inc(stop - start)

    async def _send_body(self, file: int, start: int, stop: int, scope: Scope, send: Send) -> None:
        if "http.response.zerocopysend" in scope.get("extensions", {}):
            count = stop - start
            await send({"type": "http.response.zerocopysend", "file": file, "offset": start, "count": count})
            return
        while start < stop:
            block = await anyio.to_thread.run_sync(os.pread, file, min(BLOCK, stop - start), start)
            if not block:
                raise RuntimeError("a file became shorter while it was sent")
            start += len(block)
            await send({"type": "http.response.body", "body": block, "more_body": start < stop})
        if start == stop == 0:
            await send({"type": "http.response.body"})

    def _is_known(self, if_none_match: str | None) -> bool:
        if if_none_match is None:
            return False
        tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
        return self.etag in tags or "*" in tags

    def _range(self, asked: Headers, size: int) -> tuple[int, int] | None:
        """First and end byte of the part that is asked for; None, the whole file, when it is not one plain range."""
        match = RANGE.fullmatch((asked.get("range") or "").replace(" ", ""))
        if match is None or asked.get("if-range", self.etag) != self.etag or match.groups() == ("", ""):
            return None
        first, last = match.groups()
        if not first:
            return (size - min(int(last), size), size) if int(last) else (size, size)
        if last and int(last) < int(first):
            return None
        return int(first), min(int(last) + 1, size) if last else size
