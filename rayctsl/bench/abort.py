"""Whether a process that waits in a collective for a silent peer is woken: two processes, one of which stays away."""

from __future__ import annotations

import threading
import time

import torch

from rayctsl.bench.rounds import Processes

WAKE_AFTER_SECONDS = 0.5


def measure_abort(device: str) -> float | str:
    """Seconds from the call to the end of the wait, or why it could not be tried."""
    from torch import distributed

    backend = "nccl" if device == "cuda" else "gloo"
    if backend == "nccl" and torch.cuda.device_count() < 2:
        return "not tried: NCCL needs two GPUs"
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Processes(Waiting, [(backend, store.port, rank) for rank in range(2)]) as team:
        return float(max(team.ask("wait")))


class Waiting:
    """Rank 0 waits for rank 1, which does not come, and is woken."""

    def __init__(self, backend: str, port: int, rank: int):
        from rayctsl.cluster.exchange import CollectivePlan, connect
        from rayctsl.cluster.exchange.collective import StoreAddress

        self.rank, self.device = rank, f"cuda:{rank}" if backend == "nccl" else "cpu"
        if backend == "nccl":
            torch.cuda.set_device(rank)
        self.connection = connect(CollectivePlan(backend, StoreAddress("127.0.0.1", port), "abort", rank, 2), 60)

    def __call__(self, message: str) -> float:
        from rayctsl.cluster.exchange import PeerLost

        if self.rank == 1:
            return 0.0
        woken: list[float] = []

        def wake() -> None:
            woken.append(time.monotonic())
            self.connection.abort()

        threading.Timer(WAKE_AFTER_SECONDS, wake).start()
        try:
            self.connection(torch.ones(1000, device=self.device)).result().cpu()
            self.connection.check()
        except PeerLost:
            return time.monotonic() - woken[0]
        raise RuntimeError("the collective ended without its peer")
