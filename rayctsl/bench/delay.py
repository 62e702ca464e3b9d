"""How much of a slow network `shift_delay: 1` hides: the engine with an exchange that is slowed on purpose.

Three runs side by side, in turn: the paper's order with the fast exchange, the same with the slow one, and late shifts
with the slow one. What the slow exchange adds in the second and not in the third is hidden.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from rayctsl.bench.rounds import median_and_spread
from rayctsl.bench.workload import WORKLOADS, Workload

SLOW_SHARE = 0.5  # of the time of a step


class SlowExchange:
    """An exchange that takes `seconds` longer, without using the processor."""

    def __init__(self, exchange: Callable[[Tensor], Tensor], seconds: float):
        self.exchange, self.seconds = exchange, seconds

    def __call__(self, vector: Tensor) -> Tensor:
        total = self.exchange(vector)
        time.sleep(self.seconds)
        return total


def slow_down(worker: Any, seconds: float) -> None:
    """Inside an actor of a run: slow the exchange that it has."""
    exchange = worker.travelling.exchange
    worker.travelling.exchange = SlowExchange(getattr(exchange, "exchange", exchange), seconds)


def slow_engine(engine: Any, seconds: float) -> None:
    """All processes of a run."""
    import ray

    slow = functools.partial(slow_down, seconds=seconds)
    ray.get([actor.__ray_call__.remote(slow) for actor in [*engine.learners, engine.meta]])


def hidden_share(rounds: int, workload: Workload = WORKLOADS["demo"], steps: int = 15) -> dict[str, Any]:
    """The share of the added time that late shifts hide, median over rounds."""
    from rayctsl.cluster.loop import RayEngine
    from rayctsl.learning.training import Problem

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        workload.make_data(root)
        engines = []
        for delay in (0, 1):
            method = {"name": "shifting", "shift_delay": delay}
            topology = {"workers": 2, "cpus_per_learner": 0.5}
            engine = RayEngine(Problem.of(workload.config(root, method=method, topology=topology)))
            stack.callback(engine.close)
            engine.start(None)
            engine.run(0, 3)
            engines.append(engine)
        prompt, late = engines
        position = 3

        def seconds_of(engine: Any) -> float:
            return engine.run(position, position + steps).seconds / steps

        added = SLOW_SHARE * seconds_of(prompt)
        shares, slow = [], []
        for _ in range(rounds):
            position += steps
            slow_engine(prompt, 0.0)
            fast = seconds_of(prompt)
            for engine in engines:
                slow_engine(engine, added)
            slowed, hidden = seconds_of(prompt), seconds_of(late)
            shares.append(1 - (hidden - fast) / (slowed - fast))
            slow.append(slowed / fast)
    return {**median_and_spread("delay_hidden", shares), "delay_slowed_ratio": median_and_spread("x", slow)["x"]}
