"""This checkout's whole run against another checkout's, in turn on one machine: was anything lost, or won?

Each side is a process of its own that imports its own code and starts its own Ray, and is advanced on demand; who goes
first changes from round to round. Both are asked in words that `bench step` has had for long: `OurRun`, `WORKLOADS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from rayctsl.bench.rounds import Figures, median_and_spread

HERE = Path(__file__).parents[2]

SIDE = """
import json, os, sys, tempfile
from pathlib import Path
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever else is said
from rayctsl.bench import step
from rayctsl.bench.workload import WORKLOADS, scaled
from rayctsl.cluster.resources import connected

def cpu_seconds(engine):
    import ray
    actors = [*engine.learners, engine.meta]
    return sum(ray.get([a.__ray_call__.remote(lambda _: __import__("time").process_time()) for a in actors]))

model, sizes, batch_size, workers = json.loads(sys.argv[1])
workload = scaled(WORKLOADS[model], sizes, batch_size)
with tempfile.TemporaryDirectory() as folder, connected("local"):
    workload.make_data(Path(folder, "data"))
    config = workload.config(Path(folder, "data"), topology={"workers": workers})
    our_run = getattr(step, "OurRun", None) or step.Ours  # as older checkouts call it
    with our_run(config, f"{folder}/run") as ours:
        drain = getattr(ours._run, "drain", lambda: None)  # older runs have no chunk under way
        answers.write(json.dumps(ours.packing) + "\\n")
        for line in sys.stdin:
            steps = json.loads(line)
            ours.run(max(1, steps // 10))
            drain()
            before, first = cpu_seconds(ours.engine), ours._run.step
            rate = ours.run(steps)
            drain()
            spent = (cpu_seconds(ours.engine) - before) / (ours._run.step - first)
            ours.release()
            answers.write(json.dumps([rate, spent]) + "\\n")
"""


class Side:
    """A run of one checkout's code."""

    def __init__(self, folder: Path, *arguments: str | int | None):
        self._process = subprocess.Popen(
            [sys.executable, "-c", SIDE, json.dumps(arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},  # for Ray's processes too
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = folder
        self.packing: list[list[str]] = json.loads(self._answer())

    def run(self, steps: int) -> tuple[float, float]:
        """Over at least so many steps: steps per second, and CPU seconds per step of all actors."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        rate, spent = json.loads(self._answer())
        return rate, spent

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the run of {self.folder} ended; its error is above")
        return line

    def __enter__(self) -> Side:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._process.communicate(timeout=60)  # closes both pipes
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def measure_against(
    folder: Path, model: str, sizes: str | None, batch_size: int | None, workers: int, steps: int, rounds: int
) -> Figures:
    """Steps per second of both and ours over the other's, as medians over the rounds.

    `cpu_ratio` is the other's CPU time per step over ours, which a busy machine disturbs less.
    """
    if not (folder / "rayctsl" / "bench" / "step.py").is_file():
        raise ValueError(f"{folder} is no checkout of rayctsl")
    arguments = (model, sizes, batch_size, workers)
    with Side(HERE, *arguments) as ours, Side(folder.resolve(), *arguments) as other:
        rounds_of: dict[Side, list[tuple[float, float]]] = {ours: [], other: []}
        for side in rounds_of:
            side.run(1)  # memory, caches
        for number in range(rounds):
            for side in (ours, other) if number % 2 == 0 else (other, ours):
                rounds_of[side].append(side.run(steps))
        packing = {"packing": ours.packing, "other_packing": other.packing}
    pairs = list(zip(rounds_of[ours], rounds_of[other], strict=True))
    ratios = [own[0] / others[0] for own, others in pairs]
    return {
        **median_and_spread("steps_per_s", [own[0] for own, _ in pairs]),
        **median_and_spread("other_steps_per_s", [others[0] for _, others in pairs]),
        **median_and_spread("ratio", ratios),
        **median_and_spread("cpu_ratio", [others[1] / own[1] for own, others in pairs]),
        "ratios": ratios,
        **packing,
    }
