"""Waiting for calls of several actors: the first that fails, dies or falls silent ends the wait."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rayctsl.cluster.exchange import PeerLost
from rayctsl.cluster.faults import DEATHS, Silent, Stuck, is_device_fault

Reference = Any  # Ray's, of a result on its way
Actor = Any  # Ray's handle of one
Calls = dict[Reference, Actor]

POLL_SECONDS = 0.2
BEAT_SECONDS = 2.0  # between two heartbeats
SILENT_SECONDS = 10.0  # without an answer, a process counts as lost: frozen, cut off, or never to come back to Python


class Watch:
    """Some running calls, by reference.

    A process is lost when it gives no sign of life, and all are stuck when none gets on: with a kernel that never ends,
    or a message that never comes, everybody goes on answering.
    """

    def __init__(self, running: Calls, patience: float | None = None):
        """
        Args:
            patience: seconds without progress of any actor; for ever when absent.
        """
        self.running, self.patience = running, patience
        self.actor: Actor = None  # of the call that ended the wait
        self.hopeless = False  # whether that actor is of no more use, though it may still answer
        self._beats: dict[Actor, Reference] = {}  # answers on their way, by actor
        self._heard = dict.fromkeys(running.values(), time.monotonic())
        self._progress: dict[Actor, int] = {}  # how far each actor has come
        self._moved = time.monotonic()  # when one of them got on last
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

    def _listen(self, actors: list[Actor]) -> None:
        """Ask those that still compute for a sign of life, in a thread that they keep for it."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_SECONDS
        for actor in actors:
            beat = self._beats.pop(actor, None)
            if beat is None or ray.wait([beat], timeout=0)[0]:
                if beat is not None:
                    self._hear(actor, beat, now)
                beat = actor.beat.remote()
            self._beats[actor] = beat
            if now - self._heard[actor] > SILENT_SECONDS:
                self.actor = actor
                raise Silent(f"has been silent for {now - self._heard[actor]:.0f} s")
        if self.patience is not None and now - self._moved > self.patience:
            self.actor = None
            raise Stuck(f"the learners have made no progress for {now - self._moved:.0f} s")

    def _hear(self, actor: Actor, beat: Reference, now: float) -> None:
        self._heard[actor] = now
        try:
            progress = ray.get(beat)
        except RayError:
            return  # its own call will tell
        if progress != self._progress.get(actor):
            self._progress[actor], self._moved = progress, now

    def fault(self, cause: BaseException) -> BaseException | None:
        """The fault to recover from; None when the run itself has failed."""
        if isinstance(cause, Stuck):
            return cause  # who of them cannot be woken is found out when the chunk is called off
        if isinstance(cause, Silent) or is_device_fault(cause):
            self.hopeless = True
            return cause
        if isinstance(cause, PeerLost):
            return self._death() or cause
        lost = isinstance(cause, RayError) and not isinstance(cause, RayTaskError)
        return cause if lost else None

    def _death(self) -> RayError | None:
        """The death that others have noticed first by a broken exchange."""
        for reference in ray.wait(list(self.running), num_returns=len(self.running), timeout=POLL_SECONDS)[0]:
            try:
                ray.get(reference)
            except DEATHS as error:
                self.actor = self.running[reference]
                return error
            except RayError:
                continue
        return None
