"""What every way of exchanging offers, and the form in which the loop uses it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from torch import Tensor

from rayctsl.futures import Later, finished
from rayctsl.learning.exact_sum import blocks


class PeerLost(RuntimeError):
    """Another process of the group is gone or silent; the step cannot be finished."""


class Exchange(Protocol):
    """Sums over processes. A call blocks until all have called; its result is valid until the next call."""

    wait_seconds: float

    def __call__(self, vector: Tensor) -> Tensor: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Overlapping(Protocol):
    """An exchange that goes on by itself once it is started."""

    def start(self, vector: Tensor) -> Later[Tensor]: ...


class Connection:
    """An exchange as the loop calls it: by itself, in a thread of its own, or at once."""

    def __init__(self, exchange: Exchange, in_background: bool):
        self.exchange = exchange
        self._pool = ThreadPoolExecutor(1, "exchange") if in_background else None
        self.bytes_sent = 0
        self._aborted = False

    def __call__(self, vector: Tensor) -> Later[Tensor]:
        self.bytes_sent += vector.numel() * vector.element_size()
        if isinstance(self.exchange, Overlapping):
            return self.exchange.start(vector)
        if self._pool is not None:
            return self._pool.submit(self.exchange, vector)
        return finished(self.exchange(vector))

    @property
    def wait_seconds(self) -> float:
        """How long this process has waited for others so far."""
        return self.exchange.wait_seconds

    def check(self) -> None:
        """Raise PeerLost when the exchange was called off, whatever its last call returned."""
        if self._aborted:
            raise PeerLost("the exchange was called off")

    def abort(self) -> None:
        """From another thread: wake this process if it waits for peers that will not come."""
        self._aborted = True
        self.exchange.abort()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self.exchange.close()


def add_up(vectors: list[Tensor], out: Tensor) -> Tensor:
    """The sum of exact vectors, into `out`."""
    for part in blocks(out):
        block = out[part].copy_(vectors[0][part])
        for vector in vectors[1:]:
            block.add_(vector[part])
    return out
