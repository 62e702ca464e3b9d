"""What one meta-update costs with learners that compute nothing: ours inside Ray actors against gloo without Ray.

Everywhere a learner adds up theta - phi over its tasks, the vectors are exchanged, and all move phi and their thetas by
delta. Ours has the meta-learner as one more process. gloo is measured twice: with the same exact sums in float64, which
compares the exchange alone, and with plain float32 sums in the fewest passes, which shows what exactness costs.
More figures put it in proportion: its share of a step with ResNet-20, and how much of a slow network `shift_delay: 1`
hides.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from rayctsl.bench.rounds import Figures, Processes, middle
from rayctsl.cluster.exchange import connect
from rayctsl.cluster.membership import Membership, Place, by_shared_memory
from rayctsl.cluster.testbed import answers, start_idle_actors, stop_actors
from rayctsl.learning.exact_sum import Grid
from rayctsl.learning.processor import keep_freed_memory
from rayctsl.ports import free_ports

SIZES = {"resnet20": 269_072, "resnet18": 11_176_512}
GRID = Grid(limit_bits=10, unit_bits=39, rest_bits=49)  # of the paper's 8 tasks


@dataclass(frozen=True)
class AgainstGloo:
    """Ours against gloo for one model on W learners: milliseconds per step as medians over the rounds."""

    model: str
    floats: int
    workers: int
    ms: float
    ms_spread: tuple[float, float]
    gloo_ms: float
    gloo_ms_spread: tuple[float, float]
    float32_ms: float
    float32_ms_spread: tuple[float, float]
    ratio: float
    ratio_spread: tuple[float, float]
    float32_ratio: float
    float32_ratio_spread: tuple[float, float]

    @classmethod
    def of(cls, model: str, workers: int, seconds: Sequence[tuple[float, float, float]]) -> AgainstGloo:
        """Given the seconds per step of every round: ours, gloo's, gloo's with float32 sums."""
        times = [middle([1000 * each for each in way]) for way in zip(*seconds, strict=True)]
        ratios = [middle([ours / theirs[way] for ours, *theirs in seconds]) for way in (0, 1)]
        return cls(model, SIZES[model], workers, *times[0], *times[1], *times[2], *ratios[0], *ratios[1])

    def __str__(self) -> str:
        same = f"{self.ms:.2f} ms, gloo {self.gloo_ms:.2f} ms, ratio {self.ratio:.2f}"
        figures = f"{same}; with float32 sums {self.float32_ms:.2f} ms, ratio {self.float32_ratio:.2f}"
        return f"{self.model}, W = {self.workers}: {figures}"


def measure(arguments: argparse.Namespace) -> Figures:
    """Milliseconds per step of both ways and their ratio, for every number of learners and vector size."""
    from rayctsl.bench.delay import hidden_share
    from rayctsl.cluster.resources import connected

    rows = []
    with connected("local"):
        for workers in (int(count) for count in arguments.workers.split(",")):
            for row in compare(arguments.models.split(","), workers, arguments):
                rows.append(row)
                if not arguments.json:
                    print(row, file=sys.stderr)
        hidden = hidden_share(arguments.rounds) if arguments.delay else {}
    shown = [asdict(row) for row in rows]
    result: Figures = {"rows": shown, "tasks": arguments.tasks, "rounds": arguments.rounds, **hidden}
    first = next((row for row in rows if row.model == "resnet20"), None)
    if first is not None:
        step_ms = 1000 * real_step_seconds()
        result.update({"resnet20_step_ms": step_ms, "share_of_one_tasks_step": first.ms / step_ms})
        result["share_of_step"] = first.ms / (step_ms * tasks_of(0, arguments.tasks, first.workers))
    return result


def compare(models: list[str], workers: int, arguments: argparse.Namespace) -> list[AgainstGloo]:
    """All ways in turn, in processes that stay; a ratio is the median over rounds."""
    port, rows = free_ports(1)[0], []
    with (
        OurExchange(workers) as ours,
        Processes(GlooWorker, [(rank, workers, port) for rank in range(workers)]) as gloo,
    ):
        for model in models:
            size, seconds = SIZES[model], []
            steps = max(5, arguments.steps * SIZES["resnet20"] // max(size, SIZES["resnet20"]))
            for _ in range(arguments.rounds):
                exact, plain = (max(gloo.ask((size, arguments.tasks, steps, grid))) for grid in (GRID, None))
                seconds.append((ours.run(size, arguments.tasks, steps), exact, plain))
            rows.append(AgainstGloo.of(model, workers, seconds))
    return rows


def tasks_of(rank: int, tasks: int, workers: int) -> int:
    """How many of `tasks` tasks a learner hosts."""
    return len(range(rank, tasks, workers))


def idle_steps(
    exchange: Callable[[Tensor], Tensor], size: int, num_tasks: int, steps: int, grid: Grid | None = None
) -> float:
    """Seconds per step of a process that hosts `num_tasks` tasks and computes no gradients.

    Args:
        grid: add up exactly, as rayctsl does; plain float32 sums when absent.
    """
    phi, thetas = torch.zeros(size), [torch.full((size,), 1e-3) for _ in range(num_tasks)]
    step = functools.partial(_exact_step, grid) if grid else _plain_step
    started = 0.0
    for number in range(-3, steps):  # three to warm up
        if number == 0:
            started = time.perf_counter()
        step(exchange, phi, thetas)
    return (time.perf_counter() - started) / steps


def _exact_step(grid: Grid, exchange: Callable[[Tensor], Tensor], phi: Tensor, thetas: list[Tensor]) -> None:
    """What a learner does beside its gradients."""
    total = grid.no_tasks(phi)
    for theta in thetas:
        grid.add(total, theta - phi)
    delta = grid.mean(exchange(total), phi).mul_(0.01)
    for vector in (phi, *thetas):
        vector.add_(delta)


def _plain_step(exchange: Callable[[Tensor], Tensor], phi: Tensor, thetas: list[Tensor]) -> None:
    """The same with the fewest passes over memory."""
    vector = torch.empty(len(phi) + 1)
    pull = vector[:-1]
    if thetas:
        torch.sub(thetas[0], phi, out=pull)
        for theta in thetas[1:]:
            pull.add_(theta).sub_(phi)
    vector[-1] = len(thetas)
    total = exchange(vector)
    for each in (phi, *thetas):
        each.add_(total[:-1], alpha=0.01 / total[-1].item())


class IdleMember:
    """A member of the exchange inside an actor; with no tasks it stands for the meta-learner."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()

    def run(self, membership: Membership, size: int, num_tasks: int, steps: int) -> float:
        assert membership.plan is not None
        connection = connect(membership.plan, timeout_seconds=120)
        try:
            return idle_steps(connection.exchange, size, num_tasks, steps, GRID)
        finally:
            connection.close()


class OurExchange:
    """W learners and the meta-learner as actors."""

    def __init__(self, workers: int):
        self.workers, self._rounds = workers, 0
        self.actors = start_idle_actors(IdleMember, workers + 1)

    def run(self, size: int, tasks: int, steps: int) -> float:
        """Seconds per step of the slowest."""
        self._rounds += 1
        name = f"bench-{os.getpid()}-{self.workers}-{self._rounds}"
        entries = len(GRID.no_tasks(torch.empty(size)))
        members = by_shared_memory(name, [Place("here", "127.0.0.1", 0)] * (self.workers + 1), entries, None)
        shares = [tasks_of(rank, tasks, self.workers) for rank in range(self.workers)] + [0]
        calls = [a.run.remote(m, size, n, steps) for a, m, n in zip(self.actors, members, shares, strict=True)]
        return max(answers(calls))

    def __enter__(self) -> OurExchange:
        return self

    def __exit__(self, *unused: object) -> None:
        stop_actors(self.actors)


class GlooWorker:
    """One process of plain torch.distributed."""

    def __init__(self, rank: int, workers: int, port: int):
        from torch import distributed

        torch.set_num_threads(1)
        keep_freed_memory()
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
        self.rank, self.workers, self._all_reduce = rank, workers, distributed.all_reduce

    def __call__(self, message: tuple[int, int, int, Grid | None]) -> float:
        size, tasks, steps, grid = message
        return idle_steps(self._exchange, size, tasks_of(self.rank, tasks, self.workers), steps, grid)

    def _exchange(self, vector: Tensor) -> Tensor:
        self._all_reduce(vector)
        return vector


def real_step_seconds() -> float:
    """One inner step of one task with ResNet-20, batches of 128 at 32 pixels, on one core: the cheapest real step."""
    from rayctsl.bench.inner import OPTIONS, InnerWorker

    with Processes(InnerWorker, [("resnet20", 32, OPTIONS["default"])]) as team:
        team.ask(1)
        return float(team.ask(4)[0]) / 4
