"""What learners would wait for the driver between two chunks of steps, were the next chunk not begun ahead.

The tasks work by sleeping, as in `scale.py`. Each round takes the same chunks twice: each begun when the last has been
collected, and each begun before.
"""

from __future__ import annotations

import argparse
import time

from rayctsl.bench.rounds import Figures, median_and_spread
from rayctsl.bench.scale import SleepingRun
from rayctsl.bench.transport import SIZES


def measure(arguments: argparse.Namespace) -> Figures:
    """Seconds of a chunk both ways, the wait that is saved, and the ratio of their speeds."""
    from rayctsl.cluster.resources import connected

    size, seconds = SIZES["resnet20"], arguments.work_ms / 1000
    with connected("local"):
        run = SleepingRun(arguments.tasks, arguments.workers, seconds, size)
        try:
            rounds = [
                tuple(seconds_per_chunk(run, arguments.steps, arguments.chunks, ahead) for ahead in (False, True))
                for _ in range(arguments.rounds)
            ]
        finally:
            run.engine.close()
    return {
        **median_and_spread("awaited_ms", [1000 * awaited for awaited, _ in rounds]),
        **median_and_spread("ahead_ms", [1000 * ahead for _, ahead in rounds]),
        **median_and_spread("saved_ms", [1000 * (awaited - ahead) for awaited, ahead in rounds]),
        **median_and_spread("speedup", [awaited / ahead for awaited, ahead in rounds]),
        "steps": arguments.steps,
        "chunks": arguments.chunks,
        "rounds": arguments.rounds,
    }


def seconds_per_chunk(run: SleepingRun, steps: int, chunks: int, ahead: bool) -> float:
    """Of `chunks` chunks in a row; the last one is never begun ahead of anything."""
    started = time.perf_counter()
    for number in range(chunks):
        stop = run.step + steps
        run.engine.run(run.step, stop, stop + steps if ahead and number < chunks - 1 else None)
        run.step = stop
    return (time.perf_counter() - started) / chunks
