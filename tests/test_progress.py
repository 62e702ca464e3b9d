"""Progress: plain lines with rate and time left when nobody watches a terminal."""

from __future__ import annotations

import io
import re

import pytest
from tqdm import tqdm

from rayctsl import progress
from rayctsl.progress import Progress, duration


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines(clock, capsys):
    with Progress(400, "cub", unit="image") as shown:
        shown.advance(10)
        clock[0] += 20
        shown.advance(90)
    assert capsys.readouterr().err == "cub: 100 of 400 images (25 %), 5.0 images/s, 60 s left\n"


def test_resumed_download_does_not_count_as_speed(clock, capsys):
    shown = Progress(None, "a.zip", unit="B")
    clock[0] += 30  # asking for it
    shown.jump(50 * 2**20, 100 * 2**20)
    clock[0] += 10
    shown.advance(10 * 2**20)
    assert capsys.readouterr().err == "a.zip: 60.0 of 100.0 MiB (60 %), 1.0 MiB/s, 40 s left\n"


def test_what_was_done_before_does_not_count_as_speed(clock, capsys):
    shown = Progress(10, "tables", start=6, unit="cell")
    clock[0] += 10
    shown.advance(2)
    assert capsys.readouterr().err == "tables: 8 of 10 cells (80 %), 0.2 cells/s, 10 s left\n"


def test_unknown_total(clock, capsys):
    shown = Progress(None, "a.zip", unit="B")
    clock[0] += 10
    shown.advance(2**20)
    assert capsys.readouterr().err == "a.zip: 1.0 MiB, 0.1 MiB/s\n"


def test_notes_and_details_stand_in_plain_lines_and_the_end_is_always_said(clock, capsys):
    shown = Progress(10, "shifting")
    clock[0] += 2
    shown.advance(4, "loss 3.591")
    clock[0] += 2
    shown.advance(6, "loss 2.000", "learners busy 97 %, 0.15 MB a step")
    said = "shifting: 10 of 10 steps (100 %), 2.5 steps/s, 0 s left, loss 2.000, learners busy 97 %, 0.15 MB a step\n"
    assert capsys.readouterr().err == said


def test_lines_become_rarer_with_time(clock, capsys):
    shown = Progress(10_000, "shifting")
    for _ in range(2000):
        clock[0] += 1
        shown.advance(1)
    assert 30 < capsys.readouterr().err.count("\n") < 100


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_fits_eighty_columns(monkeypatch):
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda stream: (80, 24))
    monkeypatch.setattr("tqdm.std.tqdm.format_dict", property(slow))
    screen = Terminal()
    with Progress(200_000, "fomaml_shifting", stream=screen) as shown:
        for _ in range(3):
            shown.advance(40_000, "loss 12.345", "learners busy 97 %, 0.15 MB a step")
    drawn = [line.strip() for line in re.split("[\r\n]", screen.getvalue()) if line.strip()]
    assert max(map(len, drawn)) <= 80
    assert drawn[-1].endswith("| 120000/200000 [ 1.23 steps/s, 18:04:00 left, loss 12.345]")


def slow(bar: tqdm) -> dict[str, object]:
    """What a bar shows after a day: the longest line there is."""
    formats = {name: getattr(bar, name) for name in ("n", "total", "unit", "postfix", "bar_format", "initial")}
    return {**formats, "elapsed": 97_560, "rate": 1.23, "ncols": 80, "prefix": bar.desc}


def test_the_rate_does_not_count_what_came_before_a_jump(monkeypatch):
    screen, now = Terminal(), [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    shown = Progress(100, "shifting", stream=screen)
    now[0] += 500  # starting
    shown.jump(0)
    now[0] += 10
    shown.advance(50)
    assert "50/100 [ 5.00 steps/s" in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(49, "49 s"), (700, "12 min"), (11_000, "3.1 h"), (200_000, "2.3 days")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words
