"""Sums inside a node: all its processes map the same memory, and each adds up one stretch of it.

With several nodes the first process of each goes on with `collective`, so that one vector per node crosses the network.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rayctsl.cluster.exchange.collective import Collective, CollectivePlan, join_collective
from rayctsl.cluster.exchange.connection import PeerLost, add_up

LINE = 64  # bytes between two counters, so that they do not share a cache line
COUNTER = np.dtype(np.int64)
JOIN_SECONDS = 60.0  # for the member that makes the shared memory to appear
SEGMENT_FOLDERS = ("/dev/shm", tempfile.gettempdir())  # the second when a container's /dev/shm is too small


@dataclass(frozen=True)
class SharedMemoryPlan:
    """One process's part in its node's exchange.

    Example: SharedMemoryPlan("rayctsl-3f2a-1", size=270001, members=3, slots=2, seat=0), two learners and the
    meta-learner
    """

    segment: str
    size: int  # entries of the vector, the count of tasks included
    members: int  # processes of this node
    slots: int  # those among them that contribute: the first ones
    seat: int  # this process; seat 0 makes the memory and speaks for the node
    nodes: int = 1  # when there are more, the node's sum goes on to the others
    between_nodes: CollectivePlan | None = None  # of seat 0, when there are more nodes


def join_shared_memory(plan: SharedMemoryPlan, timeout_seconds: float) -> SharedMemory:
    between = join_collective(plan.between_nodes, timeout_seconds) if plan.between_nodes else None
    try:
        return SharedMemory(plan, timeout_seconds, between)
    except BaseException:
        if between is not None:
            between.close()
        raise


class SharedMemory:
    """Sums over the processes of a node, which all map the same memory.

    Every contributor writes its vector into its slot, then adds up one stretch of all slots. A member's counter says
    how far it has come: each counter has one writer, so no locks are needed, and a process that dies takes nothing with
    it. A member without a slot (the meta-learner) only reads: nobody waits for it but at the next exchange, before the
    total is overwritten.
    """

    def __init__(self, plan: SharedMemoryPlan, timeout_seconds: float, between: Collective | None = None):
        self.plan, self.timeout, self._between = plan, timeout_seconds, between
        self._aborted = threading.Event()
        self.wait_seconds = 0.0
        self._stage = 0
        self._fence = threading.Lock()  # taking it orders memory on processors that reorder stores
        kind = np.dtype(np.float64)
        head, vector = plan.members * LINE, plan.size * kind.itemsize
        self._memory = _map_segment(plan.segment, head + (plan.slots + 1) * vector, create=plan.seat == 0)
        self._counters = np.frombuffer(self._memory, COUNTER, plan.members * LINE // 8)[:: LINE // 8]
        data = np.frombuffer(self._memory, kind, (plan.slots + 1) * plan.size, offset=head)
        table = torch.from_numpy(data.reshape(plan.slots + 1, plan.size))
        self._slots, self._total = table[:-1], table[-1]
        share = max(1, plan.slots)
        first, last = (plan.size * min(seat, share) // share for seat in (plan.seat, plan.seat + 1))
        self._stretch = slice(first, last)

    def __call__(self, vector: Tensor) -> Tensor:
        """The total over all processes; valid until the next call."""
        if self.plan.seat < self.plan.slots:
            self._slots[self.plan.seat].copy_(vector)
        self._meet(self.plan.members)
        if self.plan.seat < self.plan.slots:
            add_up(list(self._slots[:, self._stretch]), self._total[self._stretch])
        elif not self.plan.slots:
            self._total.zero_()  # the meta-learner has this node to itself
        self._meet(self.plan.slots)
        if self.plan.nodes > 1:
            if self._between is not None:
                self._between(self._total)
            self._meet(1)
        return self._total.to(vector.device)

    def _meet(self, count: int) -> None:
        """Wait until the first `count` members of the node have come this far."""
        with self._fence:
            self._stage += 1
            self._counters[self.plan.seat] = self._stage
        awaited = self._counters[:count]
        started = time.monotonic()
        pause = 0.0
        while (awaited < self._stage).any():
            if self._aborted.is_set():
                raise PeerLost("the exchange was called off")
            waited = time.monotonic() - started
            if waited > self.timeout:
                silent = np.flatnonzero(awaited < self._stage).tolist()
                raise PeerLost(f"no news of members {silent} of this node for {self.timeout:.0f} s")
            time.sleep(pause)
            if self.plan.seat < self.plan.slots:
                # Quick peers are met while yielding; slow ones cost no processor time, and a hundredth of the wait.
                pause = min(pause + 2e-5, max(5e-4, min(waited / 100, 5e-3)))
            else:
                pause = min(waited / 4, 5e-3)  # nobody waits for a reader
        self.wait_seconds += time.monotonic() - started

    def abort(self) -> None:
        self._aborted.set()
        if self._between is not None:
            self._between.abort()

    def close(self) -> None:
        if self._between is not None:
            self._between.close()
        del self._slots, self._total, self._counters
        remove_segment(self.plan.segment)


def _map_segment(name: str, size: int, create: bool) -> mmap.mmap:
    """Map shared memory by name. Its file is removed once all have it mapped, so nothing can be left behind."""
    path = _make_segment(name, size) if create else _find_segment(name)
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _make_segment(name: str, size: int) -> str:
    for folder in SEGMENT_FOLDERS:
        path = os.path.join(folder, name)
        try:
            descriptor = os.open(f"{path}.new", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            continue
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.unlink(f"{path}.new")
            continue
        finally:
            os.close(descriptor)
        os.rename(f"{path}.new", path)  # it appears with its full size
        return path
    raise OSError(f"no room for {size} bytes of shared memory in {' or '.join(SEGMENT_FOLDERS)}")


def _find_segment(name: str) -> str:
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        for folder in SEGMENT_FOLDERS:
            if os.path.exists(path := os.path.join(folder, name)):
                return path
        time.sleep(0.005)
    raise PeerLost(f"shared memory {name} did not appear")


def remove_segment(name: str) -> None:
    """Remove the segment's file; processes that have it mapped keep it."""
    for folder in SEGMENT_FOLDERS:
        Path(folder, name).unlink(missing_ok=True)
