"""The exchange that needs no ports: sums travel to the meta-learner as Ray calls, the total through the object store.

It is the fallback for clusters whose nodes reach each other through Ray alone, and the cross-check of the others.
Nobody waits inside a call: the meta-learner sends the total on when the last sum has come, so any number of learners
will do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from rayctsl.cluster.exchange.connection import PeerLost


@dataclass(frozen=True)
class RayCallsPlan:
    """One process's part. Example: RayCallsPlan("3f2a-1", num_learners=2, meta_learner=<actor handle>)"""

    generation: str
    num_learners: int
    meta_learner: Any = None  # a learner's: Ray's handle of the MetaLearner actor
    learners: tuple[Any, ...] = ()  # the meta-learner's: the handles of all learners


@dataclass(frozen=True)
class Message:
    """A vector on its way. Example: Message("3f2a-1", number=17, vector=array([...]))"""

    generation: str  # of the group; what comes from an earlier one is ignored
    number: int  # of the exchange, from 1
    vector: np.ndarray


def join_ray_calls(plan: RayCallsPlan, timeout_seconds: float) -> Contributor | Collector:
    if plan.meta_learner is not None:
        return Contributor(plan.generation, timeout_seconds, plan.meta_learner.hand_in.remote)

    def send_on(message: Message) -> None:
        stored = ray.put(message)  # one copy, whoever reads it
        for learner in plan.learners:
            learner.receive.remote(stored)

    return Collector(plan.generation, timeout_seconds, plan.num_learners, send_on)


class Mailbox:
    """Totals that have come, by number."""

    def __init__(self, generation: str, timeout_seconds: float):
        self.generation, self.timeout, self.wait_seconds = generation, timeout_seconds, 0.0
        self._number = 0  # of the exchange that this process is at
        self._totals: dict[int, np.ndarray] = {}
        self._changed = threading.Condition()
        self._aborted = False

    def _await_total(self) -> np.ndarray:
        started, number = time.monotonic(), self._number
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._aborted or number in self._totals, self.timeout)
            self.wait_seconds += time.monotonic() - started
            if self._aborted:
                raise PeerLost("the exchange was called off")
            if not arrived:
                raise PeerLost(f"no total has come for {self.timeout:.0f} s")
            return self._totals.pop(number)

    def abort(self) -> None:
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def close(self) -> None:
        self.abort()


class Contributor(Mailbox):
    """A learner's side."""

    def __init__(self, generation: str, timeout_seconds: float, hand_in: Callable[[Message], object]):
        super().__init__(generation, timeout_seconds)
        self._hand_in = hand_in

    def __call__(self, vector: Tensor) -> Tensor:
        self._number += 1
        self._hand_in(Message(self.generation, self._number, vector.cpu().numpy()))
        return torch.tensor(self._await_total(), device=vector.device)

    def receive(self, message: Message) -> None:
        """From another thread: a total has come."""
        if message.generation == self.generation:
            with self._changed:
                self._totals[message.number] = message.vector
                self._changed.notify_all()


class Collector(Mailbox):
    """The meta-learner's side: a sum from every learner in, the total out to everyone."""

    def __init__(
        self, generation: str, timeout_seconds: float, num_learners: int, send_on: Callable[[Message], object]
    ):
        super().__init__(generation, timeout_seconds)
        self.num_learners, self._send_on = num_learners, send_on
        self._sums: dict[int, np.ndarray] = {}
        self._arrived: dict[int, int] = {}

    def __call__(self, vector: Tensor) -> Tensor:
        self._number += 1
        return torch.from_numpy(self._await_total()).to(vector.device)

    def hand_in(self, message: Message) -> None:
        """From another thread: a learner's sum has come. Sums are exact, so the order does not matter."""
        if message.generation != self.generation:
            return
        number = message.number
        with self._changed:
            if number in self._sums:
                self._sums[number] += message.vector
            else:
                self._sums[number] = message.vector.copy()
            self._arrived[number] = self._arrived.get(number, 0) + 1
            if self._arrived[number] < self.num_learners:
                return
            del self._arrived[number]
            total = self._totals[number] = self._sums.pop(number)
            self._changed.notify_all()
        self._send_on(Message(self.generation, number, total))
