"""A running run as Ray metrics: every node's exporter offers them to Prometheus."""

from __future__ import annotations

import math

from ray.util.metrics import Gauge

from rayctsl.learning.engine import Chunk


class LiveView:
    """Gauges for the task losses, the rate and how the time is spent."""

    def __init__(self, task_names: tuple[str, ...]):
        self.task_names = task_names
        self._loss = Gauge("rayctsl_task_loss", "Training loss of a task", ("task",))
        self._rate = Gauge("rayctsl_steps_per_second", "Inner steps per second, each of all tasks")
        self._step = Gauge("rayctsl_inner_step", "Inner steps done by every task")
        self._faults = Gauge("rayctsl_faults", "Faults since the run began")
        self._facts = {
            "utilisation": Gauge("rayctsl_utilisation", "Share of the learners' time spent computing"),
            "stall_share": Gauge("rayctsl_stall_share", "Share of the learners' time spent waiting for each other"),
            "bytes_per_step": Gauge("rayctsl_bytes_per_step", "Bytes that the learners hand over per inner step"),
        }

    def count_faults(self, count: int) -> None:
        self._faults.set(count)

    def show(self, chunk: Chunk, step: int) -> None:
        self._step.set(step)
        for name, loss in zip(self.task_names, chunk.losses[-1], strict=True):
            if math.isfinite(loss):
                self._loss.set(float(loss), {"task": name})
        self._rate.set(len(chunk.losses) / max(chunk.seconds, 1e-9))
        for name, gauge in self._facts.items():
            gauge.set(chunk.facts[name])
