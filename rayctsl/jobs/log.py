"""A job's log: what is said and printed while an attempt runs, kept beside its events without this machine's paths."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from rayctsl.jobs.files import attempt_folder
from rayctsl.storage import Storage

LOG = "log.txt"
MAX_BYTES = 256 * 1024
WRITE_SECONDS = 2.0
ABSOLUTE_PATH = re.compile(r"(?<![\w.])(?:[a-z][a-z0-9+]*:/)?/[\w.@~+-]+(?:/[\w.@~+-]*)*")


def without_paths(text: str) -> str:
    """For users' eyes: `no file /data/x.png` becomes `no file …`."""
    return ABSOLUTE_PATH.sub("…", text)


def read_log(job: Storage, attempt: int) -> str:
    """The log of an attempt, empty when there is none."""
    try:
        return job.read(f"{attempt_folder(attempt)}/{LOG}").decode(errors="replace")
    except FileNotFoundError:
        return ""


class JobLog:
    """Lines with their time, written now and then, and at the end; of a flood the beginning is kept."""

    def __init__(self, attempt: Storage):
        self._storage, self._lines, self._size = attempt, list[str](), 0
        self._written, self._last = 0, float("-inf")

    def say(self, text: str) -> None:
        for line in without_paths(text).splitlines():
            stamped = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line[:2000]}\n"
            if self._size < MAX_BYTES:
                self._lines.append(stamped if self._size + len(stamped) < MAX_BYTES else "… the rest is left out\n")
            self._size += len(stamped)
        if time.monotonic() - self._last > WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        if len(self._lines) > self._written:
            self._storage.write(LOG, "".join(self._lines).encode())
            self._written = len(self._lines)
        self._last = time.monotonic()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take along what is printed meanwhile, which goes to the worker's own log too."""
        errors, prints = _Ear(sys.stderr, self), _Ear(sys.stdout, self)
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(prints):
            try:
                yield
            finally:
                for ear in (errors, prints):
                    ear.write("\n")
                self.write()


class _Ear(io.TextIOBase):
    """A stream whose whole lines go to a log too."""

    def __init__(self, stream: TextIO, log: JobLog):
        self._stream, self._log, self._begun = stream, log, ""

    def write(self, text: str) -> int:
        self._stream.write(text)
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._log.say(line)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
