"""Copies from far away: any time while bytes come, a sentence when none do."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from rayctsl.data import copying
from rayctsl.data.copying import copy_while_moving, next_size


class Slow:
    """A source whose reads return few bytes each, every one well after the last; from `stuck_at` on they never do."""

    def __init__(self, content: bytes, stuck_at: int | None = None):
        self.content, self.stuck_at, self.position = content, stuck_at, 0
        self.never = threading.Event()

    @contextmanager
    def open(self):
        yield self

    def read(self, nbytes: int) -> bytes:
        self.never.wait(0.05 if self.stuck_at is None or self.position < self.stuck_at else None)
        piece = self.content[self.position : self.position + min(nbytes, 10)]
        self.position += len(piece)
        return piece


def test_a_slow_source_takes_longer_than_any_silence_may(tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "STALLED_SECONDS", 0.4)
    source = Slow(bytes(range(200)))  # 20 reads of 0.05 s: twice the limit and more
    copy_while_moving(source.open, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.content


def test_a_source_that_falls_silent_ends_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "STALLED_SECONDS", 0.4)
    source = Slow(bytes(range(200)), stuck_at=100)
    with pytest.raises(ValueError, match=r"no byte has come for 0 s, after 100 bytes"):
        copy_while_moving(source.open, tmp_path / "copy")
    source.never.set()  # which ends its thread


def test_what_the_source_raises_is_raised(tmp_path):
    def refuse():
        raise PermissionError("not yours")

    with pytest.raises(PermissionError, match="not yours"):
        copy_while_moving(refuse, tmp_path / "copy")


def test_pieces_take_about_a_second():
    assert next_size(2**16, 0.001) == copying.LARGEST_PIECE
    assert next_size(2**20, 2.0) == 2**19
    assert next_size(100, 60.0) == copying.FIRST_PIECE
