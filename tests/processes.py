"""The machine's processes, as /proc tells of them: for tests that start whole trees and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def lines_are_counted() -> bool:
    """Whether this is a run of `make coverage`, which counts lines in processes that are started, not in forks."""
    return any(name.startswith("COVERAGE_PROCESS") for name in os.environ)


def is_alive(process: int) -> bool:
    """Whether it runs; one that has ended may stay in the table where nobody reaps it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def running() -> Iterator[int]:
    """Process numbers, zombies aside."""
    return (process for folder in Path("/proc").glob("[0-9]*") if is_alive(process := int(folder.name)))


def of_session(leader: int) -> list[int]:
    """What the leader of a session has started, and it itself."""
    found = []
    for process in running():
        with contextlib.suppress(OSError):
            found += [process] if os.getsid(process) == leader else []
    return found


def end_those_that_name(folder: str) -> None:
    """Kill what was started with this folder on its command line, such as what `ray start` leaves."""
    for process in running():
        with contextlib.suppress(OSError):
            if process != os.getpid() and folder.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
