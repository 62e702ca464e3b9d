"""uvicorn's HTTP protocol with the ASGI extension `http.response.zerocopysend`: the kernel sends files by itself.

Reading a file into Python and writing it to a socket costs half the speed of a large download.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

EXTENSION = "http.response.zerocopysend"


class FileProtocol(H11Protocol):
    """Offers the extension to the application on unencrypted connections (encryption happens in Python)."""

    def __init__(self, *parts: Any, **named: Any):
        super().__init__(*parts, **named)
        inner: Any = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def send_on(message: Any) -> None:
                if message["type"] == EXTENSION:
                    await _send_file(send.__self__, message)
                else:
                    await send(message)

            if scope["type"] == "http" and scope["scheme"] == "http":
                scope = {**scope, "extensions": {**scope.get("extensions", {}), EXTENSION: {}}}
            await inner(scope, receive, send_on)

        self.app = app


class _Length:
    """Stands for bytes that the kernel sends: h11 needs to know how many there are."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count


async def _send_file(cycle: RequestResponseCycle, message: Any) -> None:
    """Answer with a part of a file, which is the whole body."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected or cycle.transport.is_closing():
        return
    count, loop = message["count"], asyncio.get_running_loop()
    cycle.conn.send_with_data_passthrough(h11.Data(data=_Length(count)))  # type: ignore[arg-type]
    try:
        with os.fdopen(message["file"], "rb", closefd=False) as file:
            sent = await loop.sendfile(cycle.transport, file, message["offset"], count)
    except (ConnectionError, TimeoutError):
        sent = -1
    except RuntimeError:
        if not cycle.transport.is_closing():
            raise
        sent = -1
    if sent != count:  # the client has gone
        cycle.disconnected = True
        cycle.transport.abort()
        return
    await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})
