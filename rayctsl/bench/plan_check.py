"""The planner against the clock, on runs that are possible here: several packings, and a throttled ring.

The packings train a real model on Ray; their costs are measured on the very learners. The ring's processes sleep for
their work, because more of them run than there are cores, and every message is held back by latency and bandwidth.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rayctsl.bench.cost_model import Cluster, PlannedWork, predict
from rayctsl.bench.machine import CPU_MEET_SECONDS, memory_bandwidth, touch_seconds
from rayctsl.bench.rounds import Figures, Processes, middle
from rayctsl.bench.scale import SleepingTask
from rayctsl.bench.transport import SIZES
from rayctsl.bench.workload import Workload
from rayctsl.config import build_config
from rayctsl.ports import free_ports

UNEVEN = Workload("resnet8", 8, 32, (64, 48, 32, 32, 28, 28), (10,) * 6)
PACKINGS: dict[str, tuple[tuple[int, ...], ...]] = {
    "one learner": ((0, 1, 2, 3, 4, 5),),
    "two, balanced": ((0, 4), (1, 2, 3, 5)),
    "two, lopsided": ((0, 1, 2, 3), (4, 5)),
}
RING_WORK = (0.03, 0.02, 0.02, 0.01)  # seconds of each task's step
RINGS = ((2, 20e6, 1e-3), (2, 200e6, 5e-3), (4, 20e6, 1e-3), (4, 100e6, 5e-3))  # members, bytes/s, seconds a message


@dataclass(frozen=True)
class CheckedRun:
    """A run that was predicted and then measured. Example: CheckedRun("ring of 2, …", 41.0, 40.2, 1.02, (1.0, 1.1))"""

    run: str
    measured_ms: float
    predicted_ms: float
    ratio: float
    ratio_spread: tuple[float, float]

    @classmethod
    def of(cls, name: str, rounds: Sequence[tuple[float, float]]) -> CheckedRun:
        """Medians over the rounds, given the seconds measured and predicted in each."""
        measured, predicted = (1000 * float(np.median(each)) for each in zip(*rounds, strict=True))
        return cls(name, measured, predicted, *middle([seconds / expected for seconds, expected in rounds]))


def check(rounds: int, steps: int = 20) -> Figures:
    """Measured over predicted step time of every run; `largest_error` is the farthest from 1."""
    runs = check_packings(rounds, steps) + check_rings(rounds, steps)
    largest = max(abs(run.ratio - 1) for run in runs)
    return {"rows": [asdict(run) for run in runs], "largest_error": largest, "rounds": rounds}


def check_packings(rounds: int, steps: int, workload: Workload = UNEVEN) -> list[CheckedRun]:
    """The same tasks on one learner and in two packings on two, in turn."""
    from rayctsl.cluster.resources import connected

    touch, copies = touch_seconds(SIZES["resnet20"]), memory_bandwidth()
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in PACKINGS}
    with tempfile.TemporaryDirectory() as folder, connected("local"), ExitStack() as stack:
        root = Path(folder)
        workload.make_data(root)
        runs = {}
        for name, places in PACKINGS.items():
            runs[name] = PackedRun(workload, root, places)
            stack.callback(runs[name].engine.close)
        for _ in range(rounds):
            for name, run in runs.items():
                learners = len(PACKINGS[name])
                cluster = Cluster(
                    *(learners, learners, 1e9, 0.0),
                    memory_bandwidth=copies,
                    touch_seconds=touch,
                    meet_seconds=CPU_MEET_SECONDS,
                )
                job = PlannedWork(run.costs(), run.floats, 1, 1)
                expected = 1 / predict(job, cluster, run.packing).steps_per_s
                pairs[name].append((run.seconds(steps), expected))
    return [CheckedRun.of(name, values) for name, values in pairs.items()]


class PackedRun:
    """A run on Ray with a packing of one's own."""

    def __init__(self, workload: Workload, root: Path, places: tuple[tuple[int, ...], ...]):
        from rayctsl.cluster.engine import RayEngine
        from rayctsl.cluster.packing import Packing
        from rayctsl.learning.problem import Problem

        topology = {"workers": len(places), "cpus_per_learner": 0.2}
        self.packing = [[workload.names[place] for place in hosted] for hosted in places]
        self.engine = RayEngine(Problem.of(workload.config(root, topology=topology)))
        hosted = tuple(tuple(names) for names in self.packing)
        self.engine.packing = Packing(learners=hosted, expected_utilisation=1.0)
        self.engine.start(None)
        self.step = 0
        self.seconds(3)
        self.floats = len(self.engine.capture(self.step).result().meta["phi"])

    def costs(self) -> dict[str, float]:
        """Seconds per inner step of each task, measured on its own learner while the other one is busy too."""
        from rayctsl.cluster.testbed import answers

        pairs = zip(self.engine.learners, self.packing, strict=True)
        parts = answers([learner.measure.remote(self.engine.problem, tuple(names)) for learner, names in pairs])
        return {name: seconds for part in parts for name, seconds in part.items()}

    def seconds(self, steps: int) -> float:
        chunk = self.engine.run(self.step, self.step + steps)
        self.step += steps
        return chunk.seconds / steps


class ThrottledRing:
    """A ring all-reduce over gloo's point-to-point messages, each held back as a slow network would."""

    def __init__(self, rank: int, members: int, bandwidth: float, latency: float):
        from torch import distributed

        self._distributed = distributed
        self.rank, self.members, self.bandwidth, self.latency = rank, members, bandwidth, latency
        self.wait_seconds = 0.0

    def __call__(self, vector: Tensor) -> Tensor:
        pieces = list(vector.tensor_split(self.members))
        for turn in range(self.members - 1):
            mine, theirs = ((self.rank - turn - back) % self.members for back in (0, 1))
            pieces[theirs].add_(self._pass_on(pieces[mine], pieces[theirs]))
        for turn in range(self.members - 1):
            mine, theirs = ((self.rank + 1 - turn - back) % self.members for back in (0, 1))
            pieces[theirs].copy_(self._pass_on(pieces[mine], pieces[theirs]))
        return vector

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _pass_on(self, piece: Tensor, like: Tensor) -> Tensor:
        started, arrived = time.perf_counter(), torch.empty_like(like)
        sending = self._distributed.isend(piece, (self.rank + 1) % self.members)
        self._distributed.recv(arrived, (self.rank - 1) % self.members)
        assert sending is not None
        sending.wait()
        due = self.latency + arrived.nbytes / self.bandwidth
        time.sleep(max(0.0, due - (time.perf_counter() - started)))
        return arrived


class RingWorker:
    """One node of the throttled run: the real loop on sleeping tasks."""

    def __init__(self, rank: int, members: int, port: int, bandwidth: float, latency: float, delay: int):
        from torch import distributed

        from rayctsl.cluster.exchange import Connection
        from rayctsl.learning.group import TaskGroup
        from rayctsl.learning.loop import run_steps
        from rayctsl.learning.meta_learner import OuterLearner
        from rayctsl.methods import build_method

        torch.set_num_threads(1)
        distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=members)
        names = ring_packing(members)[rank]
        tasks = [SleepingTask(name, RING_WORK[int(name)], SIZES["resnet20"]) for name in names]
        method = {"name": "shifting", "beta": 0.01, "shift_delay": delay}
        everyone = [name for hosted in ring_packing(members) for name in hosted]
        config = build_config({"data": {"tasks": everyone}, "method": method, "inner": {"alpha": 1e-4}})
        rule = build_method(config.method, 0)
        group = TaskGroup(tasks, config, rule)  # type: ignore[arg-type]
        meta = OuterLearner(config, rule, next(iter(group.learners.values())).theta)
        exchange = Connection(ThrottledRing(rank, members, bandwidth, latency), in_background=delay > 0)
        self._run: Callable[[int, int], object] = lambda start, stop: run_steps(
            start, stop, config.inner_steps, rule, group, meta, exchange
        )
        self.step = 0

    def __call__(self, steps: int) -> float:
        started = time.perf_counter()
        self._run(self.step, self.step + steps)
        self.step += steps
        return (time.perf_counter() - started) / steps


def ring_packing(members: int) -> list[list[str]]:
    names = [str(number) for number in range(len(RING_WORK))]
    return [names[rank::members] for rank in range(members)]


def sleeping_cost(seconds: float, steps: int = 10) -> float:
    """Seconds of an inner step of a sleeping task, its optimizer included."""
    from rayctsl.learning.task_learner import InnerLearner

    learner = InnerLearner(SleepingTask("", seconds, SIZES["resnet20"]), build_config({"inner": {"alpha": 1e-4}}))
    learner.compute_gradient(0)
    started = time.perf_counter()
    for step in range(steps):
        learner.compute_gradient(step)
        learner.apply_gradient()
    return (time.perf_counter() - started) / steps


def check_rings(rounds: int, steps: int, rings: Sequence[tuple[int, float, float]] = RINGS) -> list[CheckedRun]:
    """Rings of several lengths, bandwidths and latencies, with prompt and with late shifts."""
    touch, rows = touch_seconds(SIZES["resnet20"]), []
    costs = {str(number): sleeping_cost(seconds) for number, seconds in enumerate(RING_WORK)}
    for members, bandwidth, latency in rings:
        for delay in (0, 1):
            job = PlannedWork(costs, SIZES["resnet20"], 1, 1, shift_delay=delay)
            cluster = Cluster(members, 1, bandwidth, latency, memory_bandwidth=float("inf"), touch_seconds=touch)
            expected = 1 / predict(job, cluster, ring_packing(members)).steps_per_s
            port = free_ports(1)[0]
            arguments = [(rank, members, port, bandwidth, latency, delay) for rank in range(members)]
            with Processes(RingWorker, arguments) as team:
                team.ask(3)
                taken = [float(np.max(team.ask(steps))) for _ in range(rounds)]
            name = f"ring of {members}, {bandwidth / 1e6:g} MB/s, {1000 * latency:g} ms, shift_delay {delay}"
            rows.append(CheckedRun.of(name, [(seconds, expected) for seconds in taken]))
    return rows
