"""How much of a slow network `shift_delay: 1` hides: the engine with an exchange that is slowed on purpose.

Two runs side by side, in turn, with prompt and with late shifts, each with the fast and with the slow exchange. What
the slow exchange adds to the first and not to the second is hidden.
"""

from __future__ import annotations

import functools
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from torch import Tensor

from rayctsl.bench.rounds import Figures, median_and_spread
from rayctsl.bench.workload import WORKLOADS, Workload
from rayctsl.cluster.actors import Worker
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.exchange.connection import Exchange
from rayctsl.cluster.testbed import answers, call_inside

SLOW_SHARE = 0.5  # of the time of a step


class SlowExchange:
    """An exchange that takes `seconds` longer, without using the processor."""

    def __init__(self, exchange: Exchange, seconds: float):
        self.exchange, self.seconds, self.wait_seconds = exchange, seconds, 0.0

    def __call__(self, vector: Tensor) -> Tensor:
        total = self.exchange(vector)
        time.sleep(self.seconds)
        return total

    def abort(self) -> None:
        self.exchange.abort()

    def close(self) -> None:
        self.exchange.close()


def slow_down(worker: Worker, seconds: float) -> None:
    """Inside an actor of a run: slow the exchange that it has."""
    assert worker.connection is not None
    exchange = worker.connection.exchange
    worker.connection.exchange = SlowExchange(getattr(exchange, "exchange", exchange), seconds)


def slow_engine(engine: RayEngine, seconds: float) -> None:
    """All processes of a run."""
    slow = functools.partial(slow_down, seconds=seconds)
    answers([call_inside(actor, slow) for actor in [*engine.learners, engine.meta]])


def hidden_share(rounds: int, workload: Workload = WORKLOADS["demo"], steps: int = 15) -> Figures:
    """The share of the added time that late shifts hide, median over rounds."""
    from rayctsl.learning.problem import Problem

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
        prompt = engines[0]
        position = dict.fromkeys(engines, 3)

        def seconds_of(engine: RayEngine) -> float:
            start = position[engine]
            position[engine] += steps
            return engine.run(start, start + steps).seconds / steps

        added = SLOW_SHARE * seconds_of(prompt)
        shares, slow = [], []
        for _ in range(rounds):
            taken = {}
            for engine in engines:
                for seconds in (0.0, added):
                    slow_engine(engine, seconds)
                    taken[engine, seconds] = seconds_of(engine)
            fast_and_slow = [(taken[engine, 0.0], taken[engine, added]) for engine in engines]
            shares.append(hidden(*fast_and_slow))
            slow.append(taken[prompt, added] / taken[prompt, 0.0])
    return {**median_and_spread("delay_hidden", shares), "delay_slowed_ratio": float(np.median(slow))}


def hidden(prompt: tuple[float, float], late: tuple[float, float]) -> float:
    """The share of what a slow exchange costs prompt shifts that it does not cost late ones, from (fast, slow) of each.

    Example: hidden(prompt=(2.0, 3.0), late=(2.0, 2.25)) == 0.75
    """
    return 1 - (late[1] - late[0]) / (prompt[1] - prompt[0])
