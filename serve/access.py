"""The access and audit log: one JSON line a request, who, what, when, with which status and how long it took.

Requests that change something have `"audit": true`. Lines are written by a thread of their own, the file is turned
over at 50 MB and five are kept; a disk that takes no more never holds up an answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import queue
from pathlib import Path

from rayctsl.contract import JsonObject

FILE = "access.jsonl"
MAX_BYTES, KEPT = 50 * 1024 * 1024, 5
MAX_WAITING = 10_000  # lines


class AccessLog:
    """Takes entries without waiting."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        handler = _Quiet(folder / FILE, maxBytes=MAX_BYTES, backupCount=KEPT, delay=True, encoding="utf-8")
        self._queue: queue.Queue[logging.LogRecord] = queue.Queue(MAX_WAITING)
        self._listener = logging.handlers.QueueListener(self._queue, handler)
        self._handler, self._closed = handler, False
        self._listener.start()

    def add(self, entry: JsonObject) -> None:
        record = logging.LogRecord("access", logging.INFO, "", 0, json.dumps(entry), None, None)
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(record)

    def close(self) -> None:
        """Write what waits; entries that come later are dropped."""
        if not self._closed:
            self._closed = True
            self._listener.stop()
            self._handler.close()


class _Quiet(logging.handlers.RotatingFileHandler):
    """A full disk is told of elsewhere."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
