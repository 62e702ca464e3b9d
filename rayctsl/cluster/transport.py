"""How the learners' sums become one total, in every process at the same inner step.

`NodeExchange` adds up inside a node through shared memory; between nodes, the nodes' leaders all-reduce with
torch.distributed, so that one vector per node crosses the network. A `Mailbox` needs no ports: contributions travel as
Ray calls to the meta-learner, and the total comes back through the object store. All give every process the same bits.
"""

from __future__ import annotations

import mmap
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rayctsl.futures import finished

LINE = 64  # bytes between two counters, so that they do not share a cache line
COUNTER = np.dtype(np.int64)
BLOCK = 2**16  # entries
JOIN_SECONDS = 60.0  # for the member that makes the shared memory to appear
SEGMENT_FOLDERS = ("/dev/shm", tempfile.gettempdir())  # the second when a container's /dev/shm is too small


class PeerLost(RuntimeError):
    """Another process of the group is gone or silent; the step cannot be finished."""


@dataclass(frozen=True)
class NodePlan:
    """One process's place in its node's exchange.

    Example: NodePlan("rayctsl-3f2a-1", size=270001, members=3, slots=2, place=0) - two learners and the meta-learner
    """

    segment: str
    size: int  # entries of the vector, the count of tasks included
    members: int  # processes of this node
    slots: int  # those among them that contribute: the first ones
    place: int  # this process; place 0 makes the memory and speaks for the node
    nodes: int = 1  # when there are more, the node's sum goes on to the others


class NodeExchange:
    """Sums over the processes of a node, which all map the same memory.

    Every contributor writes its vector into its slot, then adds up one stretch of all slots, always in the order of the
    slots. A member's counter says how far it has come: each counter has one writer, so no locks are needed, and a
    process that dies takes nothing with it. A member without a slot (the meta-learner) only reads: nobody waits for it
    but at the next exchange, before the total is overwritten.
    """

    def __init__(self, plan: NodePlan, dtype: torch.dtype, timeout_seconds: float, across: AcrossNodes | None = None):
        self.plan, self.timeout, self.across = plan, timeout_seconds, across
        self.aborted = threading.Event()
        self.wait_seconds = 0.0
        self._stage = 0
        self._fence = threading.Lock()  # taking it orders memory on processors that reorder stores
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        head, vector = plan.members * LINE, plan.size * kind.itemsize
        self._memory = _map_segment(plan.segment, head + (plan.slots + 1) * vector, create=plan.place == 0)
        self._counters = np.frombuffer(self._memory, COUNTER, plan.members * LINE // 8)[:: LINE // 8]
        data = np.frombuffer(self._memory, kind, (plan.slots + 1) * plan.size, offset=head)
        table = torch.from_numpy(data.reshape(plan.slots + 1, plan.size))
        self._slots, self._total = table[:-1], table[-1]
        share = max(1, plan.slots)
        first, last = (plan.size * min(place, share) // share for place in (plan.place, plan.place + 1))
        self._stretch = slice(first, last)

    def __call__(self, vector: Tensor) -> Tensor:
        """The total over all processes; valid until the next call."""
        if self.plan.place < self.plan.slots:
            self._slots[self.plan.place].copy_(vector)
        self._meet(self.plan.members)
        if self.plan.place < self.plan.slots:
            add_in_order(list(self._slots[:, self._stretch]), self._total[self._stretch])
        elif not self.plan.slots:
            self._total.zero_()  # the meta-learner has this node to itself
        self._meet(self.plan.slots)
        if self.plan.nodes > 1:
            if self.across is not None:
                self.across(self._total)
            self._meet(1)
        return self._total

    def _meet(self, count: int) -> None:
        """Wait until the first `count` members of the node have come this far."""
        with self._fence:
            self._stage += 1
            self._counters[self.plan.place] = self._stage
        awaited = self._counters[:count]
        started = time.monotonic()
        pause = 0.0
        while (awaited < self._stage).any():
            if self.aborted.is_set():
                raise PeerLost("the exchange was called off")
            waited = time.monotonic() - started
            if waited > self.timeout:
                silent = np.flatnonzero(awaited < self._stage).tolist()
                raise PeerLost(f"no news of members {silent} of this node for {self.timeout:.0f} s")
            time.sleep(pause)
            if self.plan.place < self.plan.slots:
                # Quick peers are met while yielding; slow ones cost no processor time, and a hundredth of the wait.
                pause = min(pause + 2e-5, max(5e-4, min(waited / 100, 5e-3)))
            else:
                pause = min(waited / 4, 5e-3)  # nobody waits for a reader
        self.wait_seconds += time.monotonic() - started

    def close(self) -> None:
        del self._slots, self._total, self._counters


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


class AcrossNodes:
    """An all-reduce with torch.distributed: gloo between the leaders of nodes, NCCL between learners with a GPU each.

    The store lives with the meta-learner, its address comes through Ray: no port is fixed.
    """

    def __init__(self, backend: str, store: tuple[str, int], group: str, rank: int, world: int, timeout: float):
        from torch import distributed

        self._distributed = distributed
        limit = timedelta(seconds=timeout)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_towards(store[0]))
        client = distributed.TCPStore(store[0], store[1], is_master=False, timeout=limit)
        self._store = distributed.PrefixStore(group, client)
        distributed.init_process_group(backend, store=self._store, rank=rank, world_size=world, timeout=limit)

    def __call__(self, total: Tensor) -> Tensor:
        try:
            self._distributed.all_reduce(total)
        except RuntimeError as error:
            reason = re.sub(r"^\[[^ ]*\] ", "", str(error)).split(". This")[0]  # gloo names its source file first
            raise PeerLost(f"the collective between nodes failed: {reason}") from error
        return total

    def close(self) -> None:
        self._distributed.destroy_process_group()


def _interface_towards(address: str) -> str:
    """The network interface that has the address from which `address` is reached; gloo must be told."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    return "lo"


class Mailbox:
    """The meta-learner's side of the `objects` transport: a vector from every learner in, the sum out to everyone.

    The meta-learner itself takes part in each round, as the last rank and without a vector.
    """

    def __init__(self, num_learners: int, timeout_seconds: float):
        self.num_learners, self.timeout = num_learners, timeout_seconds
        self._arrived: dict[int, Tensor | None] = {}
        self._total = torch.empty(0)
        self._round = 0
        self._changed = threading.Condition()
        self._aborted = False

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


def add_in_order(vectors: list[Tensor], out: Tensor | None = None) -> Tensor:
    """((v0 + v1) + v2) + ...: the order is fixed, so the bits are too."""
    total = torch.empty_like(vectors[0]) if out is None else out
    for start in range(0, len(total), BLOCK):  # a block of the total stays in the cache while all are added to it
        part = slice(start, start + BLOCK)
        block = total[part].copy_(vectors[0][part])
        for vector in vectors[1:]:
            block.add_(vector[part])
    return total


class Travelling:
    """Runs a blocking exchange so that the loop can go on meanwhile: in a thread of its own, or at once."""

    def __init__(self, exchange: Callable[[Tensor], Tensor], in_background: bool):
        self.exchange = exchange
        self._pool = ThreadPoolExecutor(1, "exchange") if in_background else None
        self.bytes_sent = 0

    def __call__(self, vector: Tensor) -> Future[Tensor]:
        self.bytes_sent += vector.numel() * vector.element_size()
        if self._pool is not None:
            return self._pool.submit(self.exchange, vector)
        return finished(self.exchange(vector))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
