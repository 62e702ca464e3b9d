"""Where a process is, in memory that outlives it: after a death, others on the node can tell which task it was at."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from rayctsl.learning.task_learner import InnerLearner
from rayctsl.methods import Method, Step

Result = TypeVar("Result")
LAYOUT = struct.Struct("<q256s")  # inner step, task
FOLDER = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
NAME = "rayctsl-{}-note-{}"  # of a run and a process
KEPT_SECONDS = 3600.0


class Note:
    """A process's note, under a name that others on the node know."""

    def __init__(self, name: str):
        sweep()
        self._path = FOLDER / name
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.ftruncate(descriptor, LAYOUT.size)
            self._memory = mmap.mmap(descriptor, LAYOUT.size)
        finally:
            os.close(descriptor)

    def watch(self, method: Method) -> None:
        """Write down every task as its turn comes."""
        for hook in ("inner_step", "contribution"):
            setattr(method, hook, self._noted(getattr(method, hook)))

    def _noted(self, call: Callable[[InnerLearner, Tensor, Step], Result]) -> Callable[..., Result]:
        def noted(learner: InnerLearner, phi: Tensor, step: Step) -> Result:
            LAYOUT.pack_into(self._memory, 0, step.index, learner.task.name.encode()[:256])
            return call(learner, phi, step)

        return noted

    def clear(self) -> None:
        LAYOUT.pack_into(self._memory, 0, -1, b"")

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def note_name(run_id: str, pid: int) -> str:
    return NAME.format(run_id, pid)


def sweep() -> None:
    """Delete old notes of processes that are gone: who was killed could not do it, and was asked about at once."""
    for path in FOLDER.glob(NAME.format("*", "*")):
        with suppress(OSError, ValueError):
            if time.time() - path.stat().st_mtime > KEPT_SECONDS and not _lives(int(path.name.rpartition("-")[2])):
                path.unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def read_note(name: str) -> tuple[int, str] | None:
    """The last inner step and task of a process that is gone; its note goes too."""
    path = FOLDER / name
    try:
        step, task = LAYOUT.unpack(path.read_bytes())
    except (OSError, struct.error):
        return None
    path.unlink(missing_ok=True)
    return (step, task.rstrip(b"\0").decode()) if step >= 0 else None
