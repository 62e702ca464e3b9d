"""Who counts as lost while others wait, by a clock that moves when somebody waits."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from rayctsl.cluster import calls
from rayctsl.cluster.calls import SILENT_SECONDS, Watch
from rayctsl.cluster.exchange import PeerLost
from rayctsl.cluster.faults import Silent, Stuck


class Actor:
    """One that answers heartbeats with how far it has come; None: it does not answer."""

    def __init__(self, played: Played, progress: int | None):
        self.played, self.progress = played, progress
        self.beat = SimpleNamespace(remote=self._beat)

    def _beat(self) -> tuple[int | None, float]:
        reference = (self.progress, self.played.now)
        self.played.ends[reference] = self.played.now if self.progress is not None else math.inf
        return reference


class Played:
    """Ray's part: references are pairs of a result and anything, known by when they end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        self.ends: dict[Any, float] = {}
        monkeypatch.setattr(calls, "ray", self)
        monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: self.now))

    def wait(self, references: list[Any], num_returns: int = 1, timeout: float = 0) -> tuple[list[Any], list[Any]]:
        self.now += timeout
        done = [each for each in references if self.ends[each] <= self.now]
        return done, [each for each in references if each not in done]

    def get(self, asked: Any) -> Any:
        if isinstance(asked, list):
            return [self.get(each) for each in asked]
        if isinstance(asked[0], BaseException):
            raise asked[0]
        return asked[0]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def running(played: Played, actor: Actor, seconds: float) -> dict[Any, Actor]:
    played.ends["done", "call"] = seconds
    return {("done", "call"): actor}


def test_who_answers_lives_however_long_a_call_takes(played):
    """The meta-learner hosts no tasks: it never gets on, and a first step may take minutes to compile."""
    watch = Watch(running(played, Actor(played, progress=0), 10 * SILENT_SECONDS))
    assert watch.results() == ["done"]
    assert played.now >= 10 * SILENT_SECONDS


def test_who_does_not_answer_is_lost(played):
    actor = Actor(played, progress=None)
    watch = Watch(running(played, actor, 1000.0))
    with pytest.raises(Silent, match="has been silent for 1"):
        watch.results()
    assert watch.actor is actor
    assert SILENT_SECONDS < played.now < 2 * SILENT_SECONDS
    assert watch.fault(Silent("")) is not None
    assert watch.hopeless


def test_where_nobody_gets_on_all_are_stuck(played):
    watch = Watch(running(played, Actor(played, progress=3), 1000.0), patience=30.0)
    with pytest.raises(Stuck, match="have made no progress for 3"):
        watch.results()
    assert 30.0 < played.now < 40.0
    assert watch.actor is None


@pytest.mark.parametrize("death", [RayActorError(), OutOfMemoryError("low on memory")])
def test_a_broken_exchange_is_told_as_the_death_that_broke_it(played, death):
    """Who waits for a dead peer hears of it first, and Ray a moment later."""
    waiting, dead = Actor(played, progress=1), Actor(played, progress=None)
    lost = RayTaskError("run", "a long story", PeerLost("closed by peer"))
    played.ends |= {(lost, "waiting"): 0.0, (death, "dead"): 0.1}
    watch = Watch({(lost, "waiting"): waiting, (death, "dead"): dead})
    assert watch.fault(PeerLost("closed by peer")) is death
    assert watch.actor is dead


def test_a_broken_exchange_that_nobody_died_of_is_a_fault_of_its_own(played):
    watch = Watch(running(played, Actor(played, progress=1), 1000.0))
    cause = PeerLost("called off")
    assert watch.fault(cause) is cause


def test_what_the_run_itself_has_done_wrong_is_no_fault_to_recover_from(played):
    watch = Watch(running(played, Actor(played, progress=1), 1000.0))
    faults: list[RayError] = [RayActorError(), ActorUnavailableError("x", None), OutOfMemoryError("low on memory")]
    assert [watch.fault(cause) for cause in faults] == faults
    assert watch.fault(RayTaskError("run", "a long story", TypeError("x"))) is None
    assert watch.fault(ValueError("task x has no images")) is None
    assert not watch.hopeless


def test_a_process_whose_device_has_failed_is_of_no_more_use(played):
    watch = Watch(running(played, Actor(played, progress=1), 1000.0))
    cause = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert watch.fault(cause) is cause
    assert watch.hopeless
