"""Processes that help one command: they do not see the signals that it gets, and do not outlive it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from multiprocessing.context import SpawnContext, SpawnProcess

STARTING = threading.Lock()


class HelperProcess(SpawnProcess):
    """A new Python that runs what it is given, and leaves the program alone that started it."""

    def start(self) -> None:
        with _main_module_unseen():
            super().start()


class HelperContext(SpawnContext):
    """Starts such processes, for pools and queues.

    They are spawned, not forked: the caller may have threads (torch, Ray) that a fork would break. But a spawned
    process first runs its parent's main module, for functions that may be defined there. Ours are not; and a script
    that asks nowhere whether it is `__main__` would begin anew in each of them, and wait for locks that it holds.
    """

    Process = HelperProcess


@contextmanager
def _main_module_unseen() -> Iterator[None]:
    """Processes started meanwhile take it for a package's `__main__`, which they never run."""
    main = sys.modules["__main__"]
    with STARTING:
        before = main.__spec__
        main.__spec__ = ModuleSpec("rayctsl.__main__", None)
        try:
            yield
        finally:
            main.__spec__ = before


@contextmanager
def signals_held_back(*signals: signal.Signals) -> Iterator[None]:
    """Processes started meanwhile never see these, from their first moment on: their parent tells them what to do.

    Here they come a little later.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent() -> None:
    """Inside such a process: end as soon as its parent has, however that ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
