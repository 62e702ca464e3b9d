"""Waiting for calls of several actors: the first that fails, dies or falls silent ends the wait."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from rayctsl.cluster.exchange import PeerLost
from rayctsl.cluster.faults import Silent, is_device_fault

POLL_SECONDS = 0.2
BEAT_SECONDS = 2.0  # between two heartbeats
SILENT_SECONDS = 10.0  # without an answer, a process counts as lost: frozen, cut off, or never to come back to Python


class Watch:
    """Some running calls, by reference, each of an actor of its own."""

    def __init__(self, running: dict[Any, Any]):
        self.running = running
        self.actor: Any = None  # of the call that ended the wait
        self._beats: dict[Any, Any] = {}  # answers on their way, by actor
        self._heard = dict.fromkeys(running.values(), time.monotonic())
        self._next_beat = time.monotonic() + BEAT_SECONDS

    def results(self) -> list[Any]:
        """What the calls return, in order. A look at all of them costs as much as there are of them."""
        waiting = list(self.running)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)
            for reference in done:
                self.actor = self.running[reference]
                ray.get(reference)
            self._listen([self.running[reference] for reference in waiting])
        return ray.get(list(self.running))

    def _listen(self, actors: list[Any]) -> None:
        """Ask those that still compute for a sign of life, in a thread that they keep for it."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_SECONDS
        for actor in actors:
            beat = self._beats.pop(actor, None)
            if beat is None or ray.wait([beat], timeout=0)[0]:
                if beat is not None:
                    self._heard[actor] = now
                beat = actor.beat.remote()
            self._beats[actor] = beat
            if now - self._heard[actor] > SILENT_SECONDS:
                self.actor = actor
                raise Silent(f"has been silent for {now - self._heard[actor]:.0f} s")

    def fault(self, cause: BaseException) -> BaseException | None:
        """The fault to recover from, whose actor is of no more use; None when the run itself has failed."""
        if isinstance(cause, Silent) or is_device_fault(cause):
            ray.kill(self.actor)
            return cause
        if isinstance(cause, PeerLost):
            return self._death() or cause
        lost = isinstance(cause, RayError) and not isinstance(cause, RayTaskError)
        return cause if lost else None

    def _death(self) -> RayActorError | None:
        """The death that others have noticed first by a broken exchange."""
        for reference in ray.wait(list(self.running), num_returns=len(self.running), timeout=POLL_SECONDS)[0]:
            try:
                ray.get(reference)
            except RayActorError as error:
                self.actor = self.running[reference]
                return error
            except RayError:
                continue
        return None
