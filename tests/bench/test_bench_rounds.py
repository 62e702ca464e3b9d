"""Processes that stay alive between rounds, and what is said when one does not."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from rayctsl.bench import rounds
from rayctsl.bench.rounds import Processes


def team_of(*pipes: Connection) -> Processes[int, int]:
    """A team whose processes are played by the test."""
    team = object.__new__(Processes)
    team._processes, team._pipes = [], list(pipes)
    return team


def after_it_has_read(team: Processes[int, int], there: Connection) -> None:
    team._send(1)
    there.recv()
    there.close()
    team._receive()


def before_it_has_read(team: Processes[int, int], there: Connection) -> None:
    team._send(1)
    there.close()
    team._receive()


def between_two_rounds(team: Processes[int, int], there: Connection) -> None:
    there.close()
    team.ask(1)


@pytest.mark.parametrize("dies", [after_it_has_read, before_it_has_read, between_two_rounds])
def test_whenever_a_process_dies_it_is_said(dies: Callable[[Processes[int, int], Connection], None]) -> None:
    here, there = Pipe()
    with here, pytest.raises(RuntimeError, match="a process of the measurement died"):
        dies(team_of(here), there)


def test_a_round_lasts_until_the_last_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 13.0])
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(clock))
    ends = [Pipe(), Pipe()]
    for _, there in ends:
        there.send(0)
    assert team_of(*(here for here, _ in ends)).run(1) == 3.0
    assert [there.recv() for _, there in ends] == [1, 1]
    for pair in ends:
        for end in pair:
            end.close()
