"""Inner steps per second end to end, against the limit of this machine and against the obvious program.

One step is one inner step of every task. OurRun is a whole run on Ray: data, augmentation, inner steps, meta-update,
shift, metrics and snapshots. The limit is the same number of processes with the same tasks that do nothing but forward,
backward and optimizer step on batches fixed in memory. The obvious program is in `obvious.py`.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from rayctsl.bench.against import measure_against
from rayctsl.bench.rounds import Figures, Processes, median_and_spread, release_freed_memory
from rayctsl.bench.workload import WORKLOADS, Workload, scaled
from rayctsl.config import Config
from rayctsl.learning.tasks import ImageTask, Task
from rayctsl.ports import free_ports

DEFAULT_STEPS = {"resnet20": 2, "demo": 40}
DEFAULT_ROUNDS = {"resnet20": 8, "demo": 6}


def measure(arguments: argparse.Namespace) -> Figures:
    """The three programs in turn; ratios are medians over the rounds."""
    from rayctsl.cluster.resources import connected

    workload = scaled(WORKLOADS[arguments.model], arguments.sizes, arguments.batch_size)
    steps = arguments.steps or DEFAULT_STEPS[arguments.model]
    rounds = arguments.rounds or DEFAULT_ROUNDS[arguments.model]
    if arguments.against:
        science = (arguments.model, arguments.sizes, arguments.batch_size, arguments.workers)
        return measure_against(Path(arguments.against), *science, steps=steps, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "data")
        workload.make_data(root)
        config = workload.config(root, topology={"workers": arguments.workers})
        with (
            connected("local"),
            OurRun(config, f"{folder}/run") as ours,
            Processes(LimitWorker, [(config, names) for names in ours.packing]) as limit,
            Processes(_obvious, obvious_arguments(workload, config) if arguments.obvious else []) as obvious,
        ):
            rates = [one_round(ours, limit, obvious if arguments.obvious else None, steps) for _ in range(rounds)]
            packing = [list(names) for names in ours.packing]
    facts = {"model": arguments.model, "batch_size": workload.batch_size, "sizes": workload.sizes}
    return {**summarise(rates), **facts, "packing": packing, "rounds": rounds, "steps": steps}


def summarise(rates: Sequence[Mapping[str, float]]) -> Figures:
    """Every rate, and ours over its rivals', as medians over the rounds."""
    result: Figures = {}
    for name in rates[0]:
        result.update(median_and_spread(name, [rate[name] for rate in rates]))
    for name, rival in (("efficiency", "limit_steps_per_s"), ("speedup_over_obvious", "obvious_steps_per_s")):
        if rival in result:
            result.update(median_and_spread(name, [rate["steps_per_s"] / rate[rival] for rate in rates]))
    return result


def one_round(
    ours: OurRun, limit: Processes[int, None], obvious: Processes[int, None] | None, steps: int
) -> dict[str, float]:
    """Steps per second of each. Before the clock starts ours and the limit take steps that fetch their memory again,
    which they gave back in order to leave room; the obvious program's loaders have filled up meanwhile."""
    warm_up = max(1, steps // 10)
    ours.run(warm_up)
    our_rate = ours.run(steps)
    ours.release()
    limit.run(warm_up)
    limit_rate = steps / limit.run(steps)
    limit.release()
    rates = {"steps_per_s": our_rate, "limit_steps_per_s": limit_rate}
    return rates if obvious is None else {**rates, "obvious_steps_per_s": steps / obvious.run(steps)}


class OurRun:
    """A run on Ray that is advanced on demand."""

    def __init__(self, config: Config, folder: str):
        from rayctsl.cluster.engine import RayEngine
        from rayctsl.learning.problem import Problem
        from rayctsl.learning.run import Run
        from rayctsl.learning.run_folder import RunFolder

        problem = Problem.of(config)
        self.engine = RayEngine(problem)
        self._run = Run(self.engine, problem, RunFolder.open(folder, config), log=io.StringIO())
        self._chunks = self._run.chunks()
        next(self._chunks)

    @property
    def packing(self) -> tuple[tuple[str, ...], ...]:
        assert self.engine.packing is not None
        return self.engine.packing.learners

    def run(self, steps: int) -> float:
        """Steps per second over at least `steps` steps (the run chooses its chunks)."""
        first, started = self._run.step, time.perf_counter()
        while self._run.step < first + steps:
            next(self._chunks)
        return (self._run.step - first) / (time.perf_counter() - started)

    def release(self) -> None:
        from rayctsl.cluster.testbed import answers, call_inside

        self._run.drain()
        answers([call_inside(learner, release_freed_memory) for learner in self.engine.learners])

    def __enter__(self) -> OurRun:
        return self

    def __exit__(self, *unused: object) -> None:
        self._run.close()


class FixedTask:
    """A task whose only batch is in memory."""

    def __init__(self, task: Task):
        assert isinstance(task, ImageTask)
        self.name, self._task = task.name, task
        self._batch = task.training(0)

    def build_module(self) -> nn.Module:
        return self._task.build_module()

    def head_name(self, module: nn.Module) -> str | None:
        return self._task.head_name(module)

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        images, labels = self._batch
        return nn.functional.cross_entropy(module(images), labels)


class LimitWorker:
    """Some tasks in one process: forward, backward, optimizer step."""

    def __init__(self, config: Config, names: tuple[str, ...]):
        from rayctsl.learning.processor import keep_freed_memory
        from rayctsl.learning.task_learner import InnerLearner
        from rayctsl.learning.tasks import build_image_task

        torch.set_num_threads(1)
        keep_freed_memory()
        self.learners = [InnerLearner(FixedTask(build_image_task(name, config)), config) for name in names]

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            for learner in self.learners:
                learner.compute_gradient(0)
                learner.apply_gradient()


def obvious_arguments(workload: Workload, config: Config) -> list[tuple[int, int, str, Config]]:
    """What each process of the obvious program is started with."""
    port = free_ports(1)[0]
    splits = [f"{config.data.root}/{name}/train.arrow" for name in workload.names]
    return [(rank, port, split, config) for rank, split in enumerate(splits)]


def _obvious(rank: int, port: int, split: str, config: Config) -> Callable[[int], None]:
    from rayctsl.bench.obvious import ObviousTask

    return ObviousTask(rank, port, split, config)
