"""The exchange that needs no ports: a learner sends its sum to the meta-learner as a Ray call, the total comes back.

It is the fallback for clusters whose nodes reach each other through Ray alone, and the cross-check of the others.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import ray
import torch
from torch import Tensor

from rayctsl.cluster.exchange.connection import PeerLost, add_in_order


@dataclass(frozen=True)
class RayCallsPlan:
    """One process's part. Example: RayCallsPlan(rank=0, num_learners=2, meta_learner=<actor handle>)"""

    rank: int
    num_learners: int
    meta_learner: Any  # Ray's handle of the MetaLearner actor; None for itself, whose rank is the last


def join_ray_calls(plan: RayCallsPlan, timeout_seconds: float) -> Collector | Caller:
    if plan.meta_learner is None:
        return Collector(plan.num_learners, timeout_seconds)
    return Caller(plan)


class Caller:
    """A learner's side."""

    def __init__(self, plan: RayCallsPlan):
        self.plan, self.wait_seconds = plan, 0.0

    def __call__(self, vector: Tensor) -> Tensor:
        started = time.monotonic()
        total = ray.get(self.plan.meta_learner.hand_in.remote(self.plan.rank, vector.cpu().numpy()))
        self.wait_seconds += time.monotonic() - started
        return torch.tensor(total, device=vector.device)

    def abort(self) -> None:
        """Nothing: the meta-learner's side answers every call that waits."""

    def close(self) -> None:
        pass


class Collector:
    """The meta-learner's side: a vector from every learner in, the sum out to everyone.

    The meta-learner itself takes part in each round, as the last rank and without a vector.
    """

    def __init__(self, num_learners: int, timeout_seconds: float):
        self.num_learners, self.timeout = num_learners, timeout_seconds
        self.wait_seconds = 0.0
        self._arrived: dict[int, Tensor | None] = {}
        self._total = torch.empty(0)
        self._round = 0
        self._changed = threading.Condition()
        self._aborted = False

    def __call__(self, vector: Tensor) -> Tensor:
        return self.hand_in(self.num_learners, None)

    def hand_in(self, rank: int, vector: Tensor | None) -> Tensor:
        """Returns the total of this round as soon as everyone has handed in."""
        with self._changed:
            this_round = self._round
            self._arrived[rank] = vector
            if len(self._arrived) == self.num_learners + 1:
                vectors = [self._arrived[place] for place in range(self.num_learners)]
                self._total = add_in_order([v for v in vectors if v is not None])
                self._arrived.clear()
                self._round += 1
                self._changed.notify_all()
            arrived = self._changed.wait_for(lambda: self._aborted or self._round > this_round, self.timeout)
            if self._aborted or not arrived:
                raise PeerLost(
                    "the exchange was called off" if arrived else f"a learner is silent for {self.timeout} s"
                )
            return self._total

    def abort(self) -> None:
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def close(self) -> None:
        pass
