"""Progress of long work: a bar on a terminal, plain lines with rate and time left elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from tqdm import tqdm


class Progress:
    """Counts steps towards a total; `note` is shown beside them."""

    def __init__(self, total: int, label: str, start: int = 0, unit: str = "step", stream: TextIO | None = None):
        self.total, self.label, self.unit, self.done = total, label, unit, start
        self.stream = stream or sys.stderr
        self._started, self._first = time.monotonic(), start
        self._last_line = time.monotonic()
        self._bar = None
        if self.stream.isatty():
            self._bar = tqdm(total=total, initial=start, desc=label, unit=unit, file=self.stream, dynamic_ncols=True)

    def advance(self, steps: int, note: str = "") -> None:
        self.done += steps
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(steps)
        elif time.monotonic() - self._last_line >= 5 or self.done >= self.total:
            self._last_line = time.monotonic()
            self.say(self._line(note))

    def jump(self, done: int) -> None:
        """Continue counting from elsewhere: a resumed run, or a step back after a fault."""
        self._started, self._first, self.done = time.monotonic(), done, done
        if self._bar is not None:
            self._bar.n = self._bar.initial = done
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

    def _line(self, note: str) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._first) / seconds
        left = (self.total - self.done) / rate if rate > 0 else float("inf")
        left_text = f"{left:.0f} s left" if left < 120 else f"{left / 60:.0f} min left"
        head = f"{self.label}: {self.done}/{self.total} {self.unit}s, {rate:.1f} {self.unit}s/s, {left_text}"
        return f"{head}, {note}" if note else head
