"""Train while processes and nodes are disturbed in every way, then compare phi with an undisturbed run.

The cluster is several raylets on this machine, so that a node can really be lost. The driver is a process of its own,
which is lost as well: this one starts it again, as a cluster's job controller would.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rayctsl.bench.fault_kinds import FILLER, KINDS, SMALL_DISK
from rayctsl.bench.journal import Journal
from rayctsl.bench.killer import Killer
from rayctsl.bench.noisy_task import noisy_problem
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.resources import connected
from rayctsl.cluster.testbed import Testbed, several_nodes
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import run_local, train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.registry import open_initialization

SLOW_SECONDS = 0.02  # of every inner step, so that there is time for faults to hit


@dataclass(frozen=True)
class Disturbance:
    """What a driver is given: a run, and what is to happen to it."""

    folder: str
    plan: list[str]
    seed: int
    replace: bool
    learners: int
    steps: int
    transport: str
    cpus: float = 1  # of a learner
    until: float = math.inf  # when to deal no more faults, on the monotonic clock

    def problem(self, slow_seconds: float = SLOW_SECONDS) -> Problem:
        return noisy_problem(self.learners, self.steps, self.transport, slow_seconds, self.cpus)

    @property
    def journal(self) -> Journal:
        return Journal(Path(self.folder, "journal"))

    @property
    def run_dir(self) -> str:
        return f"{self.folder}/disk/run"


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Faults survived by kind, how long each recovery took, and whether phi is the same to the last bit."""
    kinds = arguments.kinds.split(",") if arguments.kinds else [*KINDS, "node"]
    if unknown := set(kinds) - {*KINDS, "node"}:
        raise ValueError(
            f"unknown kinds of fault: {', '.join(sorted(unknown))}; there are {', '.join([*KINDS, 'node'])}"
        )
    plan = plan_faults(kinds, arguments.kills, arguments.seed)
    learners = arguments.nodes * arguments.learners_per_node
    told = {name: getattr(arguments, name) for name in ("seed", "replace", "steps", "transport")}
    with tempfile.TemporaryDirectory() as folder:
        disturbance = Disturbance(folder, plan, learners=learners, **told)
        expected = undisturbed(disturbance)
        disturbance = replace(disturbance, until=time.monotonic() + arguments.seconds)
        disk = small_disk(Path(folder, "disk"), "full disk" in plan)
        with several_nodes(arguments.nodes, arguments.learners_per_node) as testbed, disk:
            look_after(disturbance, testbed)
            result = report(disturbance, expected)
    exchange = "shared memory" if arguments.nodes == 1 and arguments.transport == "collective" else arguments.transport
    facts = {"seed": arguments.seed, "nodes": arguments.nodes, "nodes_replaced": arguments.replace}
    return {**result, **facts, "learners": learners, "transport": exchange}


def plan_faults(kinds: Sequence[str], kills: int, seed: int) -> list[str]:
    """As many faults as are asked for, of every kind as often, in an order of the seed's."""
    plan = [kinds[number % len(kinds)] for number in range(kills)]
    random.Random(seed).shuffle(plan)
    return plan


def undisturbed(disturbance: Disturbance) -> str:
    """The sha256 of phi after the same run in peace, in one process."""
    problem = disturbance.problem(0.0)
    folder = RunFolder.open(f"{disturbance.folder}/calm", problem.config)
    return run_local(problem.config, folder, problem).card.sha256


def report(disturbance: Disturbance, expected: str) -> dict[str, Any]:
    """What the journal tells, and whether phi is the expected one."""
    journal, sha256 = disturbance.journal, open_initialization(disturbance.run_dir).card.sha256
    return {
        "kills": journal.faults,
        "kills_survived": sum(journal.faults.values()),
        "kills_left": len(journal.left_of(disturbance.plan)),
        "recoveries": sum(each["count"] for each in journal.recoveries.values()),
        "recovery_seconds": journal.recoveries,
        "phi_identical": sha256 == expected,
        "sha256": sha256,
    }


@contextmanager
def small_disk(folder: Path, wanted: bool) -> Iterator[None]:
    """A folder, on a small disk of its own where it is to be filled."""
    folder.mkdir()
    if not wanted:
        yield
        return
    if os.geteuid() != 0:
        raise ValueError("the full disk is a tmpfs, which root alone may mount: choose other --kinds")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK // 2}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def look_after(disturbance: Disturbance, testbed: Testbed) -> None:
    """Start drivers until one has come to the run's end; whatever ends one but a fault that was dealt is an error."""
    context, journal = multiprocessing.get_context("spawn"), disturbance.journal
    while True:
        here, there = context.Pipe()
        driver = context.Process(target=drive, args=(disturbance, testbed.address, there), daemon=True)
        driver.start()
        there.close()
        serve_nodes(here, testbed)
        driver.join()
        fault = journal.open_fault
        if driver.exitcode == 0:
            return
        if fault is None or (fault.kind, driver.exitcode) not in {("driver", -signal.SIGKILL), ("full disk", 1)}:
            raise RuntimeError(f"the driver ended with {driver.exitcode} after {fault.kind if fault else 'no fault'}")
        Path(disturbance.folder, "disk", FILLER).unlink(missing_ok=True)


def serve_nodes(pipe: Connection, testbed: Testbed) -> None:
    """Do with the cluster's nodes what a driver asks for, until it is gone."""
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        pipe.send(getattr(testbed, name)(*arguments))


class DistantNodes:
    """The testbed's nodes, from the driver: they are the children of another process."""

    def __init__(self, pipe: Connection):
        self._pipe, self._turn = pipe, threading.Lock()

    def _ask(self, name: str, *arguments: str) -> Any:
        with self._turn:
            self._pipe.send((name, arguments))
            return self._pipe.recv()

    def ids(self) -> list[str]:
        return list(self._ask("ids"))

    def lose(self, node_id: str) -> None:
        self._ask("lose", node_id)

    def replace_lost(self) -> None:
        self._ask("replace_lost")


def drive(disturbance: Disturbance, address: str, pipe: Connection) -> None:
    """A driver: the run from its newest snapshot on, under what is left of the plan."""
    nodes = DistantNodes(pipe)
    os.dup2(2, 1)  # what Ray's processes say is no result
    with connected(address):
        d = disturbance
        drive_under(Killer(d.plan, d.journal, nodes, d.seed, d.replace, d.until), disturbance)


def drive_under(killer: Killer, disturbance: Disturbance) -> None:
    """The run on the cluster that is connected, while a killer is about."""
    problem = disturbance.problem()
    folder = RunFolder.open(disturbance.run_dir, problem.config, resume="if_exists")
    train_with(RayEngine(problem), problem, folder, hooks=killer.hooks)
