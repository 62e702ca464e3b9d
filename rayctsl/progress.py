"""Progress of long work: a bar on a terminal, plain lines with rate and time left elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self, TextIO

from tqdm import tqdm

LINE_SECONDS = (5.0, 60.0)  # between two plain lines: a twentieth of the time passed, within these
BAR = "{desc}: |{bar}| {n_fmt}/{total_fmt} [{rate_noinv_fmt}, {remaining} left{postfix}]"
NO_TOTAL = "{desc}: {n_fmt} [{rate_noinv_fmt}{postfix}]"


class Progress:
    """Counts units towards a total. Example: `with Progress(11788, "cub", unit="image") as shown: shown.advance(32)`"""

    def __init__(self, total: int | None, label: str, start: int = 0, unit: str = "step", stream: TextIO | None = None):
        """
        Args:
            total: None when it is not known (yet).
            unit: of what is counted; "B" is shown as mebibytes.
        """
        self.total, self.label, self.unit, self.done = total, label, unit, start
        self.stream = stream or sys.stderr
        self._started = self._last_line = time.monotonic()
        self._first = start
        self._bar = None
        if self.stream.isatty():
            self._bar = tqdm(
                total=total,
                initial=start,
                desc=label,
                unit=unit if unit == "B" else f" {unit}s",
                unit_scale=unit == "B",
                unit_divisor=1024,
                file=self.stream,
                dynamic_ncols=True,
                bar_format=BAR if total else NO_TOTAL,
            )

    def advance(self, count: int, note: str = "", details: str = "") -> None:
        """Count on.

        Args:
            note: stands beside the bar and in plain lines.
            details: more than a bar has room for.
        """
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
            return
        now = time.monotonic()
        least, most = LINE_SECONDS
        ended = self.done == self.total and count > 0 and self.unit != "B"
        if now - self._last_line >= min(most, max(least, (now - self._started) / 20)) or ended:
            self._last_line = now
            self.say(", ".join([self._line(), *filter(None, (note, details))]))

    def jump(self, done: int, total: int | None = None) -> None:
        """Continue counting from elsewhere: a resumed run or download, or a step back after a fault."""
        self._started, self._first, self.done = time.monotonic(), done, done
        self.total = total or self.total
        if self._bar is not None:
            self._bar.total, self._bar.n, self._bar.initial = self.total, done, done
            self._bar.bar_format = BAR if self.total else NO_TOTAL
            self._bar.unpause()  # what came before has nothing to do with the rate
            self._bar.refresh()

    def say(self, text: str) -> None:
        """A line of its own, without tearing the bar."""
        if self._bar is not None:
            self._bar.write(text, file=self.stream)
        else:
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _line(self) -> str:
        """Example: `cub: 4,096 of 11,788 images (35 %), 512 images/s, 15 s left`"""
        rate = (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)
        scale, units, digits = (2**20, "MiB", 1) if self.unit == "B" else (1, f"{self.unit}s", 0)
        done, speed = f"{self.done / scale:,.{digits}f}", f"{_number(rate / scale)} {units}/s"
        if not self.total:
            return f"{self.label}: {done} {units}, {speed}"
        share = f"{self.total / scale:,.{digits}f} {units} ({100 * self.done / self.total:.0f} %)"
        left = f", {duration((self.total - self.done) / rate)} left" if rate > 0 else ""
        return f"{self.label}: {done} of {share}, {speed}{left}"


def say(text: str) -> None:
    """What a command is about to do, where that takes seconds: nobody should wonder whether it hangs."""
    print(text, file=sys.stderr, flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def duration(seconds: float) -> str:
    """Example: "49 s", "12 min", "3.1 h", "2.4 days" """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
