"""Train while learners, the meta-learner and whole nodes are killed, then compare phi with an undisturbed run.

The cluster is `ray.cluster_utils.Cluster`: several raylets on this machine, so that a node can really be lost.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn


class NoisyTask:
    """A small network with batch norm on random images; `slow_seconds` leaves time for kills to hit."""

    def __init__(self, name: str, slow_seconds: float):
        self.name, self.slow_seconds = name, slow_seconds

    def build_module(self) -> nn.Module:
        from rayctsl.config import ModelConfig
        from rayctsl.models import build_model

        return build_model(ModelConfig(name="resnet8", width=4), 5, seed=0)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        import zlib

        time.sleep(self.slow_seconds)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name}/{index}".encode()))
        images = torch.randn(8, 3, 8, 8, generator=generator)
        return nn.functional.cross_entropy(module(images), torch.randint(0, 5, (8,), generator=generator))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Kills survived, how long each recovery took, and whether phi is the same to the last bit."""
    for name, value in (
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_IGNORE_UNHANDLED_ERRORS", "1"),
        ("RAY_worker_niceness", "0"),
    ):
        os.environ.setdefault(name, value)
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(arguments.nodes - 1)]
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    chance = random.Random(arguments.seed)
    plan = [chance.choice(["learner", "learner", "meta-learner", "node"]) for _ in range(arguments.kills)]
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(plan, cluster, nodes, num_cpus=1, seed=arguments.seed)
        result = compare(killer, arguments.nodes, arguments.steps, arguments.transport, folder)
    ray.shutdown()
    cluster.shutdown()
    return result


def compare(killer: Killer, num_learners: int, steps: int, transport: str, folder: str) -> dict[str, Any]:
    """The same training twice on the cluster that is connected: in peace, then under the killer."""
    calm = _train(_problem(num_learners, steps, transport, killer.num_cpus, 0.0), f"{folder}/calm", None)
    wild = _train(_problem(num_learners, steps, transport, killer.num_cpus, 0.02), f"{folder}/wild", killer)
    recoveries = wild["recoveries"]
    return {
        "kills": killer.kills,
        "kills_survived": sum(killer.kills.values()),
        "recoveries": len(recoveries),
        "recovery_seconds": {
            kind: {"median": round(statistics.median(seconds), 1), "max": round(max(seconds), 1)}
            for kind in killer.kills
            if (seconds := [spent for victim, spent in recoveries if victim == kind])
        },
        "phi_identical": calm["sha256"] == wild["sha256"],
        "transport": transport,
    }


def _problem(num_learners: int, steps: int, transport: str, cpus: int, slow_seconds: float) -> Any:
    from rayctsl.config import build_config
    from rayctsl.learning.problem import Problem

    tasks = {f"task-{n}": NoisyTask(f"task-{n}", slow_seconds) for n in range(num_learners + 1)}
    topology = {"workers": num_learners, "cpus_per_learner": cpus, "transport": transport, "max_failures": 1000}
    raw = {"inner_steps": max(1, steps // 3), "trajectories": 3, "snapshot_every": 20, "data": {"tasks": list(tasks)}}
    return Problem.of(
        build_config({**raw, "topology": topology, "method": {"name": "shifting", "beta": 0.1}}), tasks=tasks
    )


def _train(problem: Any, base: str, killer: Killer | None) -> dict[str, Any]:
    from rayctsl.cluster.engine import RayEngine
    from rayctsl.learning.run import Hooks, train_with
    from rayctsl.learning.run_folder import RunFolder

    engine = RayEngine(problem)
    hooks = Hooks(killer.watch, killer.replace_lost_nodes, killer.note_recovery) if killer else Hooks()
    card = train_with(engine, problem, RunFolder.open(base, problem.config), hooks=hooks).card
    return {"sha256": card.sha256, "recoveries": killer.recoveries if killer else []}


class Killer(threading.Thread):
    """Deals the kills of a plan at random moments while a run is advancing."""

    def __init__(self, plan: list[str], cluster: Any, nodes: list[Any], num_cpus: int, seed: int = 0):
        """
        Args:
            nodes: the nodes that may be lost (never the head); each has `num_cpus` CPUs, room for one learner.
        """
        super().__init__(daemon=True)
        self.plan, self.cluster, self.nodes, self.num_cpus = list(plan), cluster, nodes, num_cpus
        self.random = random.Random(seed)
        self.kills = {"learner": 0, "meta-learner": 0, "node": 0}
        self.engine: Any = None
        self.target: Any = None
        self.latest = ""
        self.recoveries: list[tuple[str, float]] = []  # the latest victim, and the seconds until the run went on
        self.recovered = threading.Event()  # from the latest kill
        self.recovered.set()
        self._lost = 0

    def watch(self, run: Any) -> None:
        """Begin, now that the run has begun."""
        if self.target is None:
            self.engine, self.target = run.engine, run
            self.start()

    def note_recovery(self, run: Any, seconds: float) -> None:
        self.recoveries.append((self.latest, seconds))
        self.recovered.set()

    def run(self) -> None:
        while self.plan and self.target.step < self.target.total:
            self._wait_for_progress()
            self.recovered.clear()
            if self._kill(self.plan[0]):
                self.latest = self.plan.pop(0)
                self.kills[self.latest] += 1
            else:
                self.recovered.set()

    def replace_lost_nodes(self, run: Any) -> None:
        """Fill up the cluster again; Ray lets only the main thread add nodes."""
        while self._lost:
            self.nodes.append(self.cluster.add_node(num_cpus=self.num_cpus))
            self._lost -= 1

    def _wait_for_progress(self) -> None:
        """Until the run has recovered and made a step since then, then a random moment."""
        while not self.recovered.wait(0.05) and self.target.step < self.target.total:
            pass
        step = self.target.step
        while step == self.target.step < self.target.total:
            time.sleep(0.05)
        time.sleep(self.random.uniform(0.0, 1.5))

    def _kill(self, kind: str) -> bool:
        import ray
        from ray.exceptions import RayError

        if kind == "node":
            if self._lost:
                return False
            self._lost += 1
            self.cluster.remove_node(self.nodes.pop(self.random.randrange(len(self.nodes))), allow_graceful=False)
            return True
        try:
            actor = self.engine.meta if kind == "meta-learner" else self.random.choice(self.engine.learners)
            place = ray.get(actor.place.options(concurrency_group="control").remote(), timeout=5)
            os.kill(place.pid, signal.SIGKILL)
        except (RayError, AttributeError, ProcessLookupError, IndexError):
            return False  # it was just being replaced
        return True
