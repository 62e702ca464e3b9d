"""Copying a file from far away: as long as it takes while bytes come, and no longer than that."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

STALLED_SECONDS = 120.0  # without a byte
FIRST_PIECE, LARGEST_PIECE = 2**16, 2**23  # bytes asked for at once
PIECE_SECONDS = 1.0  # that a piece should take


class Readable(Protocol):
    """What pyarrow opens."""

    def read(self, nbytes: int, /) -> bytes: ...


def copy_while_moving(open_source: Callable[[], AbstractContextManager[Readable]], target: Path) -> None:
    """Copy a file that some filesystem opens.

    A thread reads, for a read may never return: then it is left alone, and ValueError says for how long nothing came.
    """
    pieces: queue.Queue[bytes | Exception] = queue.Queue(maxsize=2)
    reader = Reader(open_source, pieces)
    threading.Thread(target=reader.work, name="copying", daemon=True).start()
    copied = 0
    try:
        with target.open("wb") as file:
            while piece := _next(pieces, copied):
                file.write(piece)
                copied += len(piece)
    finally:
        reader.stop.set()


def _next(pieces: queue.Queue[bytes | Exception], copied: int) -> bytes:
    try:
        piece = pieces.get(timeout=STALLED_SECONDS)
    except queue.Empty:
        raise ValueError(f"no byte has come for {STALLED_SECONDS:.0f} s, after {copied} bytes") from None
    if isinstance(piece, Exception):
        raise piece
    return piece


class Reader:
    """Hands over the pieces of a file, an empty one at its end, or the exception that ended it."""

    def __init__(
        self, open_source: Callable[[], AbstractContextManager[Readable]], pieces: queue.Queue[bytes | Exception]
    ):
        self.open_source, self.pieces = open_source, pieces
        self.stop = threading.Event()

    def work(self) -> None:
        try:
            with self.open_source() as source:
                size = FIRST_PIECE
                while not self.stop.is_set():
                    started = time.monotonic()
                    piece = source.read(size)
                    self._hand_over(piece)
                    if not piece:
                        return
                    size = next_size(len(piece), time.monotonic() - started)
        except Exception as error:  # raised by whoever waits for the next piece
            self._hand_over(error)

    def _hand_over(self, piece: bytes | Exception) -> None:
        while not self.stop.is_set():
            try:
                self.pieces.put(piece, timeout=1.0)
                return
            except queue.Full:
                continue


def next_size(read: int, seconds: float) -> int:
    """How much to ask for, so that a piece takes a second: small requests are slow, large ones look like silence."""
    wanted = read * PIECE_SECONDS / max(seconds, 1e-3)
    return int(min(max(wanted, FIRST_PIECE), LARGEST_PIECE))
