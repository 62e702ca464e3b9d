"""What one meta-update costs with learners that compute nothing: ours inside Ray actors against gloo without Ray.

Both do the same arithmetic: every learner adds up theta - phi over its tasks, the vectors are exchanged, and everyone
moves phi and its thetas by delta. Ours has the meta-learner as one more process.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rayctsl.cluster.membership import Membership, Place, by_shared_memory
from rayctsl.cluster.transport import NodeExchange, remove_segment

SIZES = {"resnet20": 269_072, "resnet18": 11_176_512}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds per step of both ways and their ratio, for every number of learners and vector size."""
    rows = []
    for name in arguments.models.split(","):
        for workers in (int(count) for count in arguments.workers.split(",")):
            rows.append(compare(name, workers, arguments.tasks, arguments.steps, arguments.rounds))
            if not arguments.json:
                row = rows[-1]
                print(
                    f"{name}, W = {workers}: {row['ms']:.2f} ms, gloo {row['gloo_ms']:.2f} ms, ratio {row['ratio']:.2f}"
                )
    return {"rows": rows, "tasks": arguments.tasks, "rounds": arguments.rounds}


def compare(model: str, workers: int, tasks: int, steps: int, rounds: int) -> dict[str, Any]:
    """Ours and gloo in turn; the ratio is the median over rounds."""
    size = SIZES[model]
    steps = max(5, steps * SIZES["resnet20"] // size) if size > SIZES["resnet20"] else steps
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(_ours(size, workers, tasks, steps))
        plain.append(_plain(size, workers, tasks, steps))
    ratios = np.array(ours) / np.array(plain)
    return {
        "model": model,
        "workers": workers,
        "ms": 1000 * float(np.median(ours)),
        "gloo_ms": 1000 * float(np.median(plain)),
        "ratio": float(np.median(ratios)),
        "ratio_spread": [float(ratios.min()), float(ratios.max())],
    }


def idle_steps(exchange: Callable[[Tensor], Tensor], size: int, num_tasks: int, steps: int) -> float:
    """Seconds per step of a process that hosts `num_tasks` tasks and computes no gradients."""
    phi, thetas = torch.zeros(size), [torch.full((size,), 1e-3) for _ in range(num_tasks)]
    vector = torch.zeros(size + 1)
    started = 0.0
    for step in range(-3, steps):  # three to warm up
        if step == 0:
            started = time.perf_counter()
        vector.zero_()
        for theta in thetas:
            vector[:-1].add_(theta - phi)
            vector[-1] += 1
        total = exchange(vector)
        delta = total[:-1].div(total[-1]).mul_(0.01)
        phi.add_(delta)
        for theta in thetas:
            theta.add_(delta)
    return (time.perf_counter() - started) / steps


class IdleMember:
    """A member of the exchange inside an actor; with no tasks it stands for the meta-learner."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def run(self, membership: Membership, size: int, num_tasks: int, steps: int) -> float:
        assert membership.node_plan is not None
        exchange = NodeExchange(membership.node_plan, torch.float32, timeout_seconds=120)
        try:
            return idle_steps(exchange, size, num_tasks, steps)
        finally:
            exchange.close()
            remove_segment(membership.node_plan.segment)


def _ours(size: int, workers: int, tasks: int, steps: int) -> float:
    import ray

    from rayctsl.cluster.resources import connected

    with connected("local"):
        actors = [ray.remote(IdleMember).options(num_cpus=0).remote() for _ in range(workers + 1)]
        places = [Place("here", "127.0.0.1", 0)] * (workers + 1)
        members = by_shared_memory(f"bench-{os.getpid()}-{time.monotonic_ns()}", places, size + 1, None)
        shares = [len(range(place, tasks, workers)) for place in range(workers)] + [0]
        calls = [a.run.remote(m, size, n, steps) for a, m, n in zip(actors, members, shares, strict=True)]
        return max(ray.get(calls))


def _plain(size: int, workers: int, tasks: int, steps: int) -> float:
    from torch import multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    arguments = (workers, port, size, tasks, steps, answers)
    multiprocessing.spawn(_plain_process, arguments, nprocs=workers)
    return max(answers.get() for _ in range(workers))


def _plain_process(rank: int, workers: int, port: int, size: int, tasks: int, steps: int, answers: Any) -> None:
    from torch import distributed

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)

    def exchange(vector: Tensor) -> Tensor:
        distributed.all_reduce(vector)
        return vector

    answers.put(idle_steps(exchange, size, len(range(rank, tasks, workers)), steps))
    distributed.destroy_process_group()
