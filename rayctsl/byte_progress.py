"""Progress of long work: a bar on a terminal, plain lines with rate and time left elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

LINE_EVERY_SECONDS = 10.0


class Progress:
    """Counts finished units. Example: `with Progress("cub", 11788, "image") as progress: progress.add(32)`"""

    def __init__(self, title: str, total: int | None, unit: str):
        self.title, self.total, self.unit = title, total, unit
        self.done = self._start = 0
        self._started = self._last_line = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=title, unit=f" {unit}", unit_scale=True, leave=False)

    def restart(self, done: int, total: int | None) -> None:
        """Go on from a known state, such as a partly downloaded file."""
        self.done = self._start = done
        self.total = total
        self._started = time.monotonic()
        if self._bar is not None:
            self._bar.reset(total)
            self._bar.update(done)

    def add(self, count: int) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Example: `cub: 4,096 of 11,788 images (35 %), 512 images/s, 15 s left`"""
        rate = (self.done - self._start) / max(time.monotonic() - self._started, 1e-9)
        scale, unit, digits = (2**20, "MiB", 1) if self.unit == "B" else (1, f"{self.unit}s", 0)
        done, speed = f"{self.done / scale:,.{digits}f}", f"{rate / scale:,.{digits}f} {unit}/s"
        if not self.total:
            return f"{self.title}: {done} {unit}, {speed}"
        left = (self.total - self.done) / max(rate, 1e-9)
        share = f"{self.total / scale:,.{digits}f} {unit} ({100 * self.done / self.total:.0f} %)"
        return f"{self.title}: {done} of {share}, {speed}, {left:.0f} s left"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self._bar is not None:
            self._bar.close()
