"""How the work is spread: what tasks cost, how long learners were busy, and when another packing would be better."""

from __future__ import annotations

import time

import numpy as np

from rayctsl.cluster.packing import Packing, pack, utilisation

WINDOW_SECONDS = 30.0  # of work before it is judged
LOW_BALANCE, LEAST_GAIN = 0.8, 0.05


class Balance:
    """Seconds per inner step of each task, and the learners' busy seconds under the packing that is in force."""

    def __init__(self, names: tuple[str, ...]):
        self.costs = dict.fromkeys(names, 0.0)  # 0 where nothing is known
        self.packing: Packing | None = None
        self.busy = np.zeros(0)  # by learner, since the packing
        self._steps = 0
        self._since = time.monotonic()

    @property
    def known(self) -> bool:
        return all(cost > 0 for cost in self.costs.values())

    @property
    def achieved(self) -> float:
        """The share of their time that the learners were busy, were they to wait for each other alone."""
        return utilisation(list(self.busy))

    def pack(self, num_learners: int) -> Packing:
        return pack(self.costs if self.known else dict.fromkeys(self.costs, 1.0), num_learners)

    def begin(self, packing: Packing) -> None:
        """A packing comes into force."""
        self.packing, self._steps, self._since = packing, 0, time.monotonic()
        self.busy = np.zeros(len(packing.learners))

    def note(self, busy_seconds: list[float], steps: int) -> None:
        """Take a chunk into account, by the learners' busy seconds in it."""
        assert self.packing is not None
        if not self.known:  # nobody has measured them: a learner's tasks share its time
            for names, seconds in zip(self.packing.learners, busy_seconds, strict=True):
                self.costs.update(dict.fromkeys(names, seconds / steps / len(names)))
        self.busy, self._steps = self.busy + busy_seconds, self._steps + steps

    def improve(self) -> Packing | None:
        """Another packing, when the learners were out of balance for a while and it promises better.

        A learner that needed longer for its tasks than they cost elsewhere is slow, and gets fewer.
        """
        if self.packing is None or len(self.busy) < 2 or time.monotonic() - self._since < WINDOW_SECONDS:
            return None
        achieved = self.achieved
        expected = np.array([sum(self.costs[name] for name in names) for names in self.packing.learners])
        slowness = self.busy / np.maximum(expected * self._steps, 1e-9)
        self.begin(self.packing)  # the next window
        if achieved >= LOW_BALANCE or not self.known:
            return None
        better = pack(self.costs, len(slowness), list(slowness))
        if better.expected_utilisation < achieved + LEAST_GAIN or better.learners == self.packing.learners:
            return None
        return better
