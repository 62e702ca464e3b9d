"""All-reduce with torch.distributed: gloo between the first processes of nodes, NCCL between learners with a GPU each.

The store lives with the meta-learner, its address comes through Ray: no port is fixed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from rayctsl.cluster.exchange.connection import PeerLost
from rayctsl.device import choose_device


@dataclass(frozen=True)
class StoreAddress:
    """Where the processes of a collective find each other."""

    host: str
    port: int


@dataclass(frozen=True)
class CollectivePlan:
    """One process's part in an all-reduce.

    Example: CollectivePlan("gloo", StoreAddress("10.0.0.7", 40123), group="3f2a-1", rank=0, world=2)
    """

    backend: str
    store: StoreAddress
    group: str  # keeps generations apart in the store
    rank: int
    world: int


def join_collective(plan: CollectivePlan, timeout_seconds: float) -> Collective:
    return Collective(plan, timeout_seconds)


class Collective:
    """A process group of this process, which has no other.

    An all-reduce is started and awaited apart, so that an accelerator computes the next gradient meanwhile. NCCL's is
    awaited by the device and not by the host; an aborted one returns as if nothing had happened, with garbage: hence
    `check` before a total is trusted.
    """

    def __init__(self, plan: CollectivePlan, timeout_seconds: float):
        from torch import distributed

        self._distributed, self.plan = distributed, plan
        self.wait_seconds = 0.0
        self._aborted = threading.Event()
        self._news = threading.Condition()
        limit, store = timedelta(seconds=timeout_seconds), plan.store
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_towards(store.host))
        # torch's watchdog would end the process; here the driver decides, and `abort` wakes whoever waits.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        try:
            client = distributed.TCPStore(store.host, store.port, is_master=False, timeout=limit)
            self._store = distributed.PrefixStore(plan.group, client)
            distributed.init_process_group(
                plan.backend, store=self._store, rank=plan.rank, world_size=plan.world, timeout=limit
            )
            self._greet()
        except RuntimeError as error:
            self.close()
            raise PeerLost(f"the processes of the group do not reach each other: {_reason(error)}") from error

    def _greet(self) -> None:
        """All-reduce one number: NCCL connects at the first use, and a firewall should show now."""
        device = choose_device() if self.plan.backend == "nccl" else "cpu"
        present = int(self(torch.ones(1, dtype=torch.float64, device=device)).item())
        if present != self.plan.world:
            raise PeerLost(f"{present} of {self.plan.world} processes answered")

    def __call__(self, vector: Tensor) -> Tensor:
        return self.start(vector).result()

    def start(self, vector: Tensor) -> Reduction:
        """Let a vector become the sum over all processes, in place; `result` waits for it."""
        try:
            return Reduction(self, self._distributed.all_reduce(vector, async_op=True), vector)
        except RuntimeError as error:
            raise PeerLost(f"the collective failed: {_reason(error)}") from error

    def wait(self, work: Any) -> None:
        if self.plan.backend != "nccl":  # waits on the host, where nothing but its own timeout would wake it
            arrived = threading.Event()  # not `work.is_completed()`, which may turn true after the callback

            def tell(future: object) -> None:
                with self._news:
                    arrived.set()
                    self._news.notify_all()

            work.get_future().add_done_callback(tell)
            with self._news:
                self._news.wait_for(lambda: self._aborted.is_set() or arrived.is_set())
            self.check()
        work.wait()

    def check(self) -> None:
        """Raise PeerLost when the exchange was called off: what came out of it since is garbage."""
        if self._aborted.is_set():
            raise PeerLost("the exchange was called off")

    def abort(self) -> None:
        self._aborted.set()
        with self._news:
            self._news.notify_all()
        if self.plan.backend == "nccl":
            from torch.distributed.distributed_c10d import _abort_process_group

            _abort_process_group()

    def close(self) -> None:
        if self._distributed.is_initialized():
            self._distributed.destroy_process_group()


@dataclass
class Reduction:
    """An all-reduce on its way."""

    collective: Collective
    work: Any
    vector: Tensor

    def result(self) -> Tensor:
        started = time.monotonic()
        try:
            self.collective.wait(self.work)
        except PeerLost:
            raise
        except RuntimeError as error:
            raise PeerLost(f"the collective failed: {_reason(error)}") from error
        finally:
            self.collective.wait_seconds += time.monotonic() - started
        return self.vector


def _reason(error: RuntimeError) -> str:
    return re.sub(r"^\[[^ ]*\] ", "", str(error)).split(". This")[0]  # gloo names its source file first


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
