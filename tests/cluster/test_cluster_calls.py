"""Who counts as lost while others wait, by a clock that moves when somebody waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.cluster import calls
from rayctsl.cluster.calls import SILENT_SECONDS, Watch
from rayctsl.cluster.faults import Silent, Stuck


class Played:
    """Ray's part: calls that end at some moment, and actors that answer with how far they have come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        self.ends: dict[Any, float] = {}  # by reference
        monkeypatch.setattr(calls, "ray", self)
        monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: self.now))

    def actor(self, progress: int | None) -> SimpleNamespace:
        """None: it answers no heartbeat."""

        def beat() -> tuple[int | None, float]:
            reference = (progress, self.now)
            self.ends[reference] = self.now if progress is not None else float("inf")
            return reference

        made = SimpleNamespace(beat=SimpleNamespace(remote=beat))
        return type("Actor", (), {"beat": made.beat})()

    def wait(self, references: list[Any], num_returns: int = 1, timeout: float = 0) -> tuple[list[Any], list[Any]]:
        self.now += timeout
        done = [each for each in references if self.ends[each] <= self.now]
        return done, [each for each in references if each not in done]

    def get(self, asked: Any) -> Any:
        return [each[0] for each in asked] if isinstance(asked, list) else asked[0]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def running(played: Played, actor: Any, seconds: float) -> dict[Any, Any]:
    played.ends["done", "call"] = seconds
    return {("done", "call"): actor}


def test_who_answers_lives_however_long_a_call_takes(played):
    """The meta-learner hosts no tasks: it never gets on, and a first step may take minutes to compile."""
    watch = Watch(running(played, played.actor(progress=0), 10 * SILENT_SECONDS))
    assert watch.results() == ["done"]
    assert played.now >= 10 * SILENT_SECONDS


def test_who_does_not_answer_is_lost(played):
    actor = played.actor(progress=None)
    watch = Watch(running(played, actor, 1000.0))
    with pytest.raises(Silent, match="has been silent for 1"):
        watch.results()
    assert watch.actor is actor
    assert SILENT_SECONDS < played.now < 2 * SILENT_SECONDS
    assert watch.fault(Silent("")) is not None
    assert watch.hopeless


def test_where_nobody_gets_on_all_are_stuck(played):
    watch = Watch(running(played, played.actor(progress=3), 1000.0), patience=30.0)
    with pytest.raises(Stuck, match="have made no progress for 3"):
        watch.results()
    assert 30.0 < played.now < 40.0
    assert watch.actor is None
