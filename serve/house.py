"""Threads for the service's own work: whatever guests keep busy, the dispatcher and the probes have these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Returned = TypeVar("Returned")
THREADS = 5  # one of them may be starting a cluster


class House:
    """Example: await house.run(store.counts)"""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "rayctsl-house")

    async def run(self, work: Callable[..., Returned], *arguments: object) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
