"""How near the engine's packing comes to the best one, with the paper's image sizes.

The tasks' costs are measured on two learners that are busy at the same time. The packing is made from the first
measurement, as the engine makes it, and judged by the median of later ones, against the best of all packings. On two
learners a real run is measured too; with more learners than cores a run would measure the cores, not the packing, so
there the utilisation is computed from the measured costs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rayctsl.bench.rounds import Figures
from rayctsl.bench.workload import WORKLOADS, scaled
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.packing import pack, utilisation


@dataclass(frozen=True)
class PackedWell:
    """How near a packing on W learners is to the best."""

    workers: int
    utilisation: float
    best_utilisation: float
    ratio: float
    packing: tuple[tuple[str, ...], ...]


def measure(arguments: argparse.Namespace) -> Figures:
    """Utilisation by the engine's packing and by the best, for every number of learners, and their ratio."""
    from rayctsl.cluster.resources import connected
    from rayctsl.learning.problem import Problem

    workload = scaled(WORKLOADS[arguments.model], arguments.sizes, arguments.batch_size)
    with tempfile.TemporaryDirectory() as folder, connected("local"):
        workload.make_data(Path(folder))
        engine = RayEngine(Problem.of(workload.config(Path(folder), topology={"workers": 2})))
        try:
            engine.start(None)
            measured = [costs_on(engine, workload.names) for _ in range(1 + arguments.rounds)]
            run = run_utilisation(engine, arguments.steps)
        finally:
            engine.close()
    first, later = measured[0], measured[1:]
    costs = {name: float(np.median([costs[name] for costs in later])) for name in workload.names}
    rows = [compare(first, costs, int(count)) for count in arguments.workers.split(",")]
    return {
        "rows": [asdict(row) for row in rows],
        "lowest_ratio": min(row.ratio for row in rows),
        "run_on_two_learners": run,
        "seconds_per_step": costs,
        "how": "rows: computed from costs measured with two busy learners; run_on_two_learners: the clock",
        "rounds": arguments.rounds,
    }


def costs_on(engine: RayEngine, names: tuple[str, ...]) -> dict[str, float]:
    """Seconds per inner step of each task, spread over all learners as the engine does before it packs."""
    from rayctsl.cluster.testbed import answers

    shares = [names[number :: len(engine.learners)] for number in range(len(engine.learners))]
    parts = answers(
        [actor.measure.remote(engine.problem, share) for actor, share in zip(engine.learners, shares, strict=True)]
    )
    return {name: seconds for part in parts for name, seconds in part.items()}


def run_utilisation(engine: RayEngine, steps: int) -> dict[str, float]:
    """What the learners of a real run achieve: the share of time they work, and how even their work is."""
    engine.run(0, 1)
    before = engine.busy_seconds()
    chunk = engine.run(1, 1 + steps)
    busy = engine.busy_seconds() - before
    return {"utilisation": chunk.facts["utilisation"], "balance": utilisation(list(busy))}


def compare(known: Mapping[str, float], true: Mapping[str, float], learners: int) -> PackedWell:
    """The packing by the costs that were known, judged by the true ones, against the best."""
    chosen = pack(known, learners).learners
    loads = [sum(true[name] for name in names) for names in chosen]
    best = best_loads(list(true.values()), learners)
    achieved, possible = utilisation(loads), utilisation(best)
    return PackedWell(learners, achieved, possible, achieved / possible, chosen)


def best_loads(costs: list[float], learners: int) -> list[float]:
    """The loads of the packing whose largest load is smallest, by trying all (a task's place among empty learners
    does not matter, and what is already worse is given up)."""
    order = sorted(costs, reverse=True)
    best: list[float] = [float("inf")] * learners
    loads = [0.0] * learners

    def place(number: int) -> None:
        nonlocal best
        if number == len(order):
            best = list(loads)
            return
        tried = set()
        for learner in range(learners):
            if loads[learner] in tried or loads[learner] + order[number] >= max(best):
                continue
            tried.add(loads[learner])
            loads[learner] += order[number]
            place(number + 1)
            loads[learner] -= order[number]

    place(0)
    return best
