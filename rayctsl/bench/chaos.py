"""Train while processes and nodes are disturbed in every way, then compare phi with an undisturbed run.

The cluster is several raylets on this machine, so that a node can really be lost.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn

from rayctsl.bench.fault_kinds import KINDS
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.testbed import Testbed, several_nodes
from rayctsl.config import build_config
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Hooks, Run, run_local, train_with
from rayctsl.learning.run_folder import RunFolder


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
    """Faults survived by kind, how long each recovery took, and whether phi is the same to the last bit."""
    chance = random.Random(arguments.seed)
    kinds = arguments.kinds.split(",") if arguments.kinds else [*KINDS, "node"]
    plan = [kinds[number % len(kinds)] for number in range(arguments.kills)]
    chance.shuffle(plan)
    with several_nodes(arguments.nodes) as testbed, tempfile.TemporaryDirectory() as folder:
        killer = Killer(plan, testbed, seed=arguments.seed, replace=arguments.replace)
        result = compare(killer, arguments.nodes, arguments.steps, arguments.transport, folder)
    return {**result, "seed": arguments.seed, "nodes": arguments.nodes, "nodes_replaced": arguments.replace}


def compare(killer: Killer, num_learners: int, steps: int, transport: str, folder: str) -> dict[str, Any]:
    """The same training twice: in one process and in peace, then on the cluster that is connected, under the killer."""
    cpus = killer.testbed.cpus_per_node
    problem = _problem(num_learners, steps, transport, cpus, 0.0)
    calm = run_local(problem.config, RunFolder.open(f"{folder}/calm", problem.config), problem)
    problem = _problem(num_learners, steps, transport, cpus, 0.02)
    hooks = Hooks(killer.watch, killer.before_recovery, killer.note_recovery)
    wild = train_with(RayEngine(problem), problem, RunFolder.open(f"{folder}/wild", problem.config), hooks=hooks)
    by_kind: dict[str, list[float]] = {}
    for kind, seconds in killer.recoveries:
        by_kind.setdefault(kind, []).append(seconds)
    return {
        "kills": killer.kills,
        "kills_survived": sum(killer.kills.values()),
        "kills_left": len(killer.plan),
        "recoveries": len(killer.recoveries),
        "recovery_seconds": {
            kind: {"median": round(statistics.median(each), 1), "worst": round(max(each), 1), "count": len(each)}
            for kind, each in sorted(by_kind.items())
        },
        "phi_identical": calm.card.sha256 == wild.card.sha256,
        "sha256": wild.card.sha256,
        "transport": transport,
    }


def _problem(num_learners: int, steps: int, transport: str, cpus: float, slow_seconds: float) -> Problem:
    tasks = {f"task-{n}": NoisyTask(f"task-{n}", slow_seconds) for n in range(num_learners + 1)}
    topology = {"workers": num_learners, "cpus_per_learner": cpus, "transport": transport}
    raw = {"inner_steps": max(1, steps // 3), "trajectories": 3, "snapshot_every": 20, "data": {"tasks": list(tasks)}}
    return Problem.of(
        build_config({**raw, "topology": topology, "method": {"name": "shifting", "beta": 0.1}}), tasks=tasks
    )


class Killer(threading.Thread):
    """Deals the faults of a plan at random moments while a run is advancing."""

    def __init__(self, plan: list[str], testbed: Testbed, seed: int = 0, replace: bool = True):
        """
        Args:
            testbed: each of its nodes has room for one learner.
            replace: whether lost nodes come back.
        """
        super().__init__(daemon=True)
        self.plan, self.testbed, self.replace = list(plan), testbed, replace
        self.random = random.Random(seed)
        self.kills: dict[str, int] = {}
        self.target: Run | None = None
        self.latest, self.dealt = "", 0.0
        self.recoveries: list[tuple[str, float]] = []  # the latest fault, and the seconds from it until the run went on
        self.recovered = threading.Event()  # from the latest fault
        self.recovered.set()
        self._lost = 0

    def watch(self, run: Run) -> None:
        """Begin, now that the run has begun."""
        if self.target is None:
            self.target = run
            self.start()

    def before_recovery(self, run: Run) -> None:
        """Fill up the cluster again, if that is wanted; Ray lets only the main thread add nodes."""
        while self._lost and self.replace:
            self.testbed.add_node()
            self._lost -= 1

    def note_recovery(self, run: Run, seconds: float) -> None:
        """Of a fault that was dealt, from that moment; of one that came by itself, its recovery alone."""
        dealt = not self.recovered.is_set()
        spent = time.monotonic() - self.dealt if dealt else seconds
        self.recoveries.append((self.latest if dealt else "by itself", spent))
        self.recovered.set()

    def run(self) -> None:
        assert self.target is not None
        while self.plan and self.target.step < self.target.total:
            self._wait_for_progress(self.target)
            if self.target.step >= self.target.total:
                return
            kind = self.plan.pop(0)
            self.latest, self.dealt = kind, time.monotonic()
            self.recovered.clear()
            if self._harm(kind):
                self.kills[kind] = self.kills.get(kind, 0) + 1
            else:
                self.recovered.set()
                self.plan += [kind] if kind != "node" else []  # no node is left to lose

    def _wait_for_progress(self, run: Run) -> None:
        """Until the run has recovered and made a step since then, then a random moment."""
        while not self.recovered.wait(0.05) and run.step < run.total:
            pass
        step = run.step
        while step == run.step < run.total:
            time.sleep(0.05)
        time.sleep(self.random.uniform(0.0, 1.5))

    def _harm(self, kind: str) -> bool:
        assert self.target is not None
        if kind != "node":
            return KINDS[kind](self.target, self.random)
        if not self.testbed.nodes:
            return False
        number = self.random.randrange(len(self.testbed.nodes))
        hosts = {place.node for place in self.target.engine.team.places}  # type: ignore[attr-defined]
        if str(self.testbed.nodes[number].node_id) not in hosts:
            self.recovered.set()  # nobody will miss it
        self.testbed.lose_node(number)
        self._lost += 1
        return True
