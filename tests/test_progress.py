"""Progress: plain lines with rate and time left when nobody watches a terminal."""

from __future__ import annotations

import pytest

from rayctsl import byte_progress as progress
from rayctsl.byte_progress import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines(clock, capsys):
    with Progress("cub", 400, "image") as shown:
        shown.add(10)
        clock[0] += 20
        shown.add(90)
    assert capsys.readouterr().err == "cub: 100 of 400 images (25 %), 5 images/s, 60 s left\n"


def test_resumed_download_does_not_count_as_speed(clock, capsys):
    shown = Progress("a.zip", None, "B")
    shown.restart(50 * 2**20, 100 * 2**20)
    clock[0] += 10
    shown.add(10 * 2**20)
    assert capsys.readouterr().err == "a.zip: 60.0 of 100.0 MiB (60 %), 1.0 MiB/s, 40 s left\n"


def test_unknown_total(clock, capsys):
    shown = Progress("a.zip", None, "B")
    clock[0] += 10
    shown.add(2**20)
    assert capsys.readouterr().err == "a.zip: 1.0 MiB, 0.1 MiB/s\n"
