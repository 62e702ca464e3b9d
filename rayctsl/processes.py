"""Processes that help one command: they do not see the signals that it gets, and do not outlive it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
