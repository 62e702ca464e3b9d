"""How the cost of a step grows with tasks and learners, and how long a run takes to its first inner step.

The tasks of the first part work by sleeping, with a backbone as large as ResNet-20's: their work is the same whatever
the machine, even with more learners than cores, so what a step takes beyond its slowest learner's work is overhead.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rayctsl.bench.rounds import Figures, median_and_spread, middle
from rayctsl.bench.transport import SIZES
from rayctsl.bench.workload import WORKLOADS
from rayctsl.config import build_config, dump_config


def measure(arguments: argparse.Namespace) -> Figures:
    """Step time against T and W, with linear fits, and the start's ratio to the bare cost."""
    result: Figures = {"rounds": arguments.rounds, "work_ms": arguments.work_ms}
    if not arguments.only_start:
        result.update(growth(arguments))
    if arguments.start_rounds:
        result.update(start_cost(arguments.start_rounds, arguments.start_workers))
    return result


class SleepingModel(nn.Module):
    """As many parameters as a ResNet-20 and next to nothing to compute."""

    head_name = "head"

    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Parameter(torch.full((size,), 0.5))
        self.head = nn.Linear(1, 1)


class SleepingTask:
    """A task whose inner step takes `seconds` on any machine."""

    def __init__(self, name: str, seconds: float, size: int):
        self.name, self.seconds, self.size = name, seconds, size

    def build_module(self) -> nn.Module:
        return SleepingModel(self.size)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        time.sleep(self.seconds)
        assert isinstance(module, SleepingModel)
        return module.head(module.body[:1]).square().sum()


class SleepingRun:
    """One engine with T sleeping tasks on W learners."""

    def __init__(self, tasks: int, workers: int, seconds: float, size: int):
        from rayctsl.cluster.engine import RayEngine
        from rayctsl.learning.problem import Problem

        self.tasks, self.workers, self.step = tasks, workers, 0
        own = {f"task-{number}": SleepingTask(f"task-{number}", seconds, size) for number in range(tasks)}
        config = build_config(
            {
                "data": {"tasks": list(own)},
                "inner": {"alpha": 1e-4},
                "topology": {"workers": workers, "cpus_per_learner": 0.01},
            }
        )
        self.engine = RayEngine(Problem.of(config, tasks=own), measure_costs=False)
        self.engine.start(None)
        self.run(2)

    def run(self, steps: int) -> tuple[float, float]:
        """Seconds per step, and what of them the busiest learner did not work."""
        before = self.engine.busy_seconds() if self.step else 0.0
        chunk = self.engine.run(self.step, self.step + steps)
        self.step += steps
        busy = float(np.max(self.engine.busy_seconds() - before))
        return chunk.seconds / steps, (chunk.seconds - busy) / steps


@dataclass(frozen=True)
class StepGrowth:
    """What T tasks on W learners take; medians over the rounds, with their spread."""

    tasks: int
    workers: int
    step_ms: float
    step_ms_spread: tuple[float, float]
    overhead_ms: float
    overhead_ms_spread: tuple[float, float]
    overhead_share: float

    @classmethod
    def of(cls, tasks: int, workers: int, rounds: Sequence[tuple[float, float]]) -> StepGrowth:
        """Given the seconds of a step and of its overhead in every round."""
        step, overhead = (middle([1000 * each for each in part]) for part in zip(*rounds, strict=True))
        return cls(tasks, workers, *step, *overhead, overhead_share=overhead[0] / step[0])


def growth(arguments: argparse.Namespace) -> Figures:
    """Step and overhead for T tasks on two learners, and for the largest T on W learners."""
    from rayctsl.cluster.resources import connected

    tasks = [int(count) for count in arguments.tasks.split(",")]
    workers = [int(count) for count in arguments.workers.split(",")]
    pairs = dict.fromkeys([(count, workers[0]) for count in tasks] + [(max(tasks), count) for count in workers])
    size, seconds = arguments.floats or SIZES["resnet20"], arguments.work_ms / 1000
    taken: dict[tuple[int, int], list[tuple[float, float]]] = {pair: [] for pair in pairs}
    with connected("local"), ExitStack() as stack:
        runs = {}
        for count, learners in pairs:
            run = SleepingRun(count, learners, seconds, size)
            stack.callback(run.engine.close)
            runs[count, learners] = run
        for _ in range(arguments.rounds):
            for pair, run in runs.items():
                taken[pair].append(run.run(arguments.steps))
    rows = [StepGrowth.of(count, learners, times) for (count, learners), times in taken.items()]
    by_tasks = [row for row in rows if row.workers == workers[0]]
    counts = [row.tasks for row in by_tasks]
    return {
        "rows": [asdict(row) for row in rows],
        "step_fit": linear_fit(counts, [row.step_ms for row in by_tasks]),
        "overhead_fit": linear_fit(counts, [row.overhead_ms for row in by_tasks]),
    }


def linear_fit(x: list[int], y: list[float]) -> dict[str, float]:
    """y = at_zero + per_task * x by least squares, and the share of y's variance that the line explains."""
    if len(x) < 2:
        return {}
    slope, start = np.polyfit(x, y, 1)
    left = np.asarray(y) - (start + slope * np.asarray(x))
    spread = float(np.var(y))
    return {
        "at_zero_ms": float(start),
        "per_task_ms": float(slope),
        "r_squared": 1 - float(np.var(left)) / spread if spread else 1.0,
    }


BARE = """
import os, sys
os.environ.update({"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"})
import logging, ray, torch
ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
@ray.remote(num_cpus=0)
class Actor:
    def __init__(self):
        import torch
    def answer(self):
        return 1
print("started", flush=True)
actors = [Actor.remote() for _ in range(int(sys.argv[1]))]
ray.get([actor.answer.remote() for actor in actors])
print("ready", flush=True)
"""


def start_cost(rounds: int, workers: int) -> Figures:
    """Seconds from the command to the first inner step's metrics, against Ray, torch and as many bare actors."""
    ours, bare, driver = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "data")
        workload = WORKLOADS["demo"]
        workload.make_data(root)
        own = workload.config(root, snapshot_every=1, log_every=1, topology={"workers": workers})
        config = own.model_copy(update={"inner_steps": 1, "trajectories": 2})
        Path(folder, "start.yaml").write_text(dump_config(config))
        for number in range(rounds):
            started, ready = _bare_start(workers + 1)
            driver.append(started)
            bare.append(ready)
            ours.append(_our_start(folder, number))
    return {
        **median_and_spread("first_step_s", ours),
        **median_and_spread("bare_start_s", bare),
        **median_and_spread("bare_driver_s", driver),
        **median_and_spread("start_ratio", [own / plain for own, plain in zip(ours, bare, strict=True)]),
        **median_and_spread("start_ratio_to_driver", [own / plain for own, plain in zip(ours, driver, strict=True)]),
    }


def _bare_start(actors: int) -> tuple[float, float]:
    begun, moments = time.perf_counter(), []
    command = [sys.executable, "-c", BARE, str(actors)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() in ("started", "ready"):
                moments.append(time.perf_counter() - begun)
    if len(moments) != 2:
        raise RuntimeError("the bare program did not start Ray")
    return moments[0], moments[1]


def _our_start(folder: str, number: int) -> float:
    run = Path(folder, f"run-{number}")
    command = [sys.executable, "-m", "rayctsl.train", "--config", f"{folder}/start.yaml", "--run-dir", str(run)]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not (run / "metrics.parquet").exists() and process.poll() is None:
            time.sleep(0.005)
        seconds = time.perf_counter() - begun
        _, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the run failed: {errors.strip().splitlines()[-1:]}")
    return seconds
