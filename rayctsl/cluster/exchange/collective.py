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

from torch import Tensor

from rayctsl.cluster.exchange.connection import PeerLost


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
    """A process group of this process, which has no other."""

    def __init__(self, plan: CollectivePlan, timeout_seconds: float):
        from torch import distributed

        self._distributed, self._backend = distributed, plan.backend
        self._aborted = threading.Event()
        self.wait_seconds = 0.0
        limit, store = timedelta(seconds=timeout_seconds), plan.store
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_towards(store.host))
        client = distributed.TCPStore(store.host, store.port, is_master=False, timeout=limit)
        self._store = distributed.PrefixStore(plan.group, client)
        distributed.init_process_group(
            plan.backend, store=self._store, rank=plan.rank, world_size=plan.world, timeout=limit
        )

    def __call__(self, vector: Tensor) -> Tensor:
        started = time.monotonic()
        try:
            self._distributed.all_reduce(vector)
        except RuntimeError as error:
            reason = re.sub(r"^\[[^ ]*\] ", "", str(error)).split(". This")[0]  # gloo names its source file first
            raise PeerLost(f"the collective between nodes failed: {reason}") from error
        self.wait_seconds += time.monotonic() - started
        if self._aborted.is_set():
            raise PeerLost("the exchange was called off")
        return vector

    def abort(self) -> None:
        """NCCL can be woken, and then returns with garbage, hence the flag; gloo notices lost peers by itself."""
        self._aborted.set()
        if self._backend == "nccl":
            self._distributed.distributed_c10d._abort_process_group()

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
