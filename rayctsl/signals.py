"""SIGTERM, as batch systems and `timeout` send it, stops a command as Ctrl-C does: cleanly, with exit code 143."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_open: list[None] = []  # an entry for every context that is open
_received: list[int] = []  # SIGTERMs since the first of them was opened


class Terminated(KeyboardInterrupt):
    """SIGTERM, where it stops like Ctrl-C."""

    exit_code = 128 + signal.SIGTERM


@contextmanager
def term_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM does what Ctrl-C does, by whatever handler that has; the interrupt leaves as `Terminated`."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a script Ctrl-C means nothing
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, interrupt)
    _open.append(None)
    try:
        yield
    except KeyboardInterrupt:
        if _received:
            raise Terminated from None
        raise
    finally:
        _open.pop()
        if not _open:  # an inner one may be closed by the interrupt that an outer one has to name
            _received.clear()
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def handlers_kept(*signals: signal.Signals) -> Iterator[None]:
    """Afterwards these signals do what they did before, whatever a library has made of them."""
    before = {signum: signal.getsignal(signum) for signum in signals}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # nobody sets handlers elsewhere
            for signum, handler in before.items():
                if handler is not None:  # one of C, which Python cannot set again
                    signal.signal(signum, handler)


def stop_if_asked() -> None:
    """Stop when SIGTERM has come and gone unheard: some libraries swallow an interrupt while they are imported."""
    if _received:
        raise Terminated
