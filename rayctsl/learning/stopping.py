"""How a run stops when it is asked to: between two chunks, saved; at once where there is nothing new to save."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Protocol

from rayctsl.learning.run_folder import RunFolder


class Interrupted(Exception):
    """The run was asked to stop by a signal; it is saved and can be resumed."""

    def __init__(self, signum: int, run_dir: str, own_model: str | None = None):
        command = f"python -m rayctsl.train --resume {run_dir}"
        if own_model:  # which a command cannot bring
            command = f"rayctsl.train(resume={run_dir!r}, model={own_model.rpartition('.')[2]})"
        super().__init__(f"stopped; continue with: {command}")
        self.exit_code = 128 + signum


class StopAtOnce(KeyboardInterrupt):
    """The run was asked to stop by a signal while it had nothing new to save."""

    def __init__(self, signum: int):
        super().__init__()
        self.signum, self.exit_code = signum, 128 + signum


class Stoppable(Protocol):
    """What has to be known of a run in order to stop it."""

    folder: RunFolder
    starting: bool

    def interrupted(self, signum: int) -> Interrupted: ...


class StopSignals:
    """Turns SIGINT and SIGTERM into a flag while a run is going, so that it ends between two chunks.

    A run that is only starting is stopped at once, and so is one that is asked twice.
    """

    def __init__(self, run: Stoppable, wanted: bool = True) -> None:
        self.run, self.wanted, self.received = run, wanted, 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if self.wanted and threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._note)
        return self

    def _note(self, signum: int, frame: FrameType | None) -> None:
        again, self.received = self.received, signum
        if again or self.run.starting:
            raise StopAtOnce(signum)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        if isinstance(error, StopAtOnce) and self.run.folder.has_snapshots:
            raise self.run.interrupted(error.signum) from None
