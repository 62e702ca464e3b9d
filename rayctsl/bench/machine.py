"""What this machine's memory and processors take for a meta-update, whatever the model."""

from __future__ import annotations

import time
from functools import cache

import torch

CPU_MEET_SECONDS = 3e-4  # for the processes of a node to find that all have come


@cache
def memory_bandwidth(floats: int = 2**23) -> float:
    """Bytes per second, read and written, of a large copy here."""
    source, target = torch.zeros(floats), torch.zeros(floats)
    target.copy_(source)
    started = time.perf_counter()
    for _ in range(5):
        target.copy_(source)
    return 5 * 8 * floats / (time.perf_counter() - started)


@cache
def touch_seconds(floats: int, steps: int = 10) -> float:
    """Seconds per task and float of what a meta-update does to a task, here: the quietest of several tries."""
    from rayctsl.bench.transport import GRID, idle_steps

    one, five = (min(idle_steps(lambda v: v, floats, count, steps, GRID) for _ in range(5)) for count in (1, 5))
    return max(five - one, 0.0) / 4 / floats
