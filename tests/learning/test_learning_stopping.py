"""Signals while a run is going: the first is noted, the second stops at once, and afterwards all is as before."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.learning.stopping import StopAtOnce, StopSignals

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RUN: Any = SimpleNamespace(starting=False, folder=SimpleNamespace(has_snapshots=False))


def test_after_a_run_signals_do_what_they_did_before():
    before = [signal.getsignal(signum) for signum in SIGNALS]
    with StopSignals(RUN):
        assert all(signal.getsignal(signum) != usual for signum, usual in zip(SIGNALS, before, strict=True))
    assert [signal.getsignal(signum) for signum in SIGNALS] == before


def test_the_second_signal_stops_at_once():
    noted = []

    def signalled_twice() -> None:
        with StopSignals(RUN) as stop:
            signal.raise_signal(signal.SIGTERM)
            noted.append(stop.received)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(StopAtOnce) as stopped:
        signalled_twice()
    assert (noted, stopped.value.exit_code) == ([signal.SIGTERM], 130)
