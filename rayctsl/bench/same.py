"""The sha256 of phi for every method, number of learners, number of nodes and transport: one per method, or it is told.

Real engines on real (if small) clusters of this machine; actors live on from method to method, as their start is what
costs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

from torch import Tensor

from rayctsl.bench.noisy_task import NoisyTask
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.resources import connected
from rayctsl.cluster.testbed import several_nodes
from rayctsl.config import METHOD_CONFIGS, build_config
from rayctsl.learning.engine import Engine, LocalEngine
from rayctsl.learning.problem import Problem

TASKS, INNER_STEPS, STEPS = 8, 4, 8
CLUSTERS = {(1, 8): (1, 2, 3, 4, 8), (2, 1): (2,), (2, 2): (3, 4), (3, 1): (3,), (3, 3): (8,)}  # nodes, CPUs: learners
TRANSPORTS = {"shared memory": None, "collective": "gloo", "Ray calls": None}


class Row(TypedDict):
    """A way to compute phi, and the methods whose phi differed from that of one process."""

    way: str
    learners: int
    nodes: int
    methods: int
    different: list[str]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One sha256 per method, and every way that was compared with it."""
    methods = [name for name, kind in METHOD_CONFIGS.items() if kind.trains]
    if arguments.methods:
        methods = [name for name in methods if name in arguments.methods.split(",")]
    expected = {method: digest(take_steps(LocalEngine(problem(method)))) for method in methods}
    rows: list[Row] = []
    wanted = [int(count) for count in arguments.nodes.split(",")]
    for (nodes, cpus), workers in CLUSTERS.items():
        if nodes not in wanted:
            continue
        with several_nodes(nodes, cpus) as testbed, connected(testbed.address):
            every = [compare(count, expected) for count in workers]
            for row in itertools.chain(*every, compare_changes(expected) if nodes == 1 else ()):
                rows.append(row)
                print(row, file=sys.stderr)
    return {"sha256": expected, "rows": rows, "all_identical": not any(row["different"] for row in rows)}


def problem(method: str, workers: int = 1, transport: str = "shared memory") -> Problem:
    tasks = {f"task-{n}": NoisyTask(f"task-{n}", 0.0) for n in range(TASKS)}
    topology = {"workers": workers, "transport": "objects" if transport == "Ray calls" else "collective"}
    raw = {"inner_steps": INNER_STEPS, "trajectories": STEPS // INNER_STEPS, "data": {"tasks": list(tasks)}}
    chosen = {"name": method, "beta": 0.05}
    return Problem.of(build_config({**raw, "topology": topology, "method": chosen}), tasks=tasks)


def digest(phi: Tensor) -> str:
    return hashlib.sha256(phi.numpy().tobytes()).hexdigest()


def take_steps(engine: Engine) -> Tensor:
    """phi after all steps, in two chunks that do not end with a trajectory."""
    engine.start(None)
    engine.run(0, STEPS // 2 + 1)
    engine.run(STEPS // 2 + 1, STEPS)
    return engine.capture(STEPS).result().meta["phi"]


def compare(workers: int, expected: dict[str, str]) -> Iterator[Row]:
    """Every transport with so many learners on the cluster that is connected."""
    crew = Crew()
    for transport, backend in TRANSPORTS.items():
        if workers == 1 and transport != "shared memory":
            continue  # one learner exchanges with nobody
        different, hosts = [], set[str]()
        for method in spread(expected, workers):
            engine = crew.engine(problem(method, workers, transport), backend)
            if digest(take_steps(engine)) != expected[method]:
                different.append(method)
            hosts = {place.node for place in engine.team.places[:-1]}
        yield Row(
            way="alone" if workers == 1 else transport,
            learners=workers,
            nodes=len(hosts),
            methods=len(spread(expected, workers)),
            different=different,
        )
    crew.close()


def compare_changes(expected: dict[str, str]) -> Iterator[Row]:
    """Runs that go on with another number of learners, and tasks that move, in mid-trajectory."""
    for way, change in {"resumed 2 -> 4 -> 1": resume, "tasks moved": move}.items():
        crews = [Crew() for _ in range(3)]
        methods = spread(expected, 2)
        different = [method for method in methods if digest(change(method, crews)) != expected[method]]
        yield Row(way=way, learners=2, nodes=1, methods=len(methods), different=different)
        for crew in crews:
            crew.close()


def spread(expected: dict[str, str], workers: int) -> list[str]:
    """The methods that have so many learners use."""
    return [method for method in expected if len(problem(method).task_names) >= workers]


def resume(method: str, crews: list[Crew]) -> Tensor:
    state, cuts = None, (0, 3, 6, STEPS)
    for crew, workers, start, stop in zip(crews, (2, 4, 1), cuts, cuts[1:], strict=False):
        engine = crew.engine(problem(method, workers), None)
        engine.start(state)
        engine.run(start, stop)
        state = engine.capture(stop).result()
    assert state is not None
    return state.meta["phi"]


def move(method: str, crews: list[Crew]) -> Tensor:
    engine = crews[0].engine(problem(method, 2), None)
    engine.start(None)
    engine.run(0, 3)
    assert engine.packing is not None
    first, second = engine.packing.learners
    moved = engine.packing.changed(learners=(second[:1], (*first, *second[1:])))
    improve: list[Callable[[], object]] = [lambda: moved, lambda: None]
    engine.balance.improve = lambda: improve.pop(0)()  # type: ignore[method-assign,assignment,return-value]
    engine.run(3, 6)
    engine.run(6, STEPS)
    return engine.capture(STEPS).result().meta["phi"]


class Crew:
    """The actors of one number of learners, from engine to engine."""

    def __init__(self) -> None:
        self._engine: RayEngine | None = None

    def engine(self, problem: Problem, backend: str | None) -> RayEngine:
        """An engine for a problem, with the actors of the one before."""
        team = self._engine.team if self._engine is not None else None
        self._engine = RayEngine(problem, measure_costs=False, backend=backend, team=team)
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
