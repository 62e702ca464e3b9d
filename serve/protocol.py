"""uvicorn's HTTP protocol with the ASGI extension `http.response.zerocopysend`: the kernel sends files by itself.

Reading a file into Python and writing it to a socket costs half the speed of a large download.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
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


def bounded(protocol: type[FileProtocol], seconds: float, per_address: int) -> type[FileProtocol]:
    """The protocol for one service: with a time for every request's head to come, and so many connections an address.

    Both are kept before anything of a request is looked at: who sends half a request, or nothing, is not yet anybody.
    """
    open_by_address: Counter[str] = Counter()

    class Bounded(protocol):  # type: ignore[misc, valid-type]
        _deadline: asyncio.TimerHandle | None = None
        _address = ""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._address = str((transport.get_extra_info("peername") or ("",))[0])
            open_by_address[self._address] += 1
            if open_by_address[self._address] > per_address:
                transport.abort()
                return
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            open_by_address[self._address] -= 1
            if not open_by_address[self._address]:
                del open_by_address[self._address]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # A request under way is the application's; anything else is the beginning of one, however slow it drips.
            if self.cycle is not None and not self.cycle.response_complete:
                self._head_came()
            elif self._deadline is None and not self.transport.is_closing():
                self._await_head()

        def _await_head(self) -> None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(seconds, self.transport.abort)

        def _head_came(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded


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
