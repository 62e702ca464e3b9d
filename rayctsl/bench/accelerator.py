"""What is promised of GPUs, checked on the one at hand: one command, and a report to paste into an issue.

Works: every method gives the CPU's phi within rounding. Waits: what the host waits for inside a chunk. Bits: two
deterministic runs. Graphs: recorded against eager steps. Abort: a collective that waits for a silent peer is woken.
Speed: steps per second against the same steps on batches fixed in memory (the limit) and against the obvious program.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rayctsl.bench.abort import measure_abort
from rayctsl.bench.rounds import Figures
from rayctsl.bench.step import FixedTask, summarise
from rayctsl.bench.workload import WORKLOADS, scaled
from rayctsl.config import METHOD_CONFIGS, Config
from rayctsl.contract import package_versions
from rayctsl.device import choose_device, describe_device, synchronize
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.tasks import build_image_task
from rayctsl.methods import build_method

CLOSE = 1e-2  # largest difference from the CPU's phi, relative to how far phi has moved


@dataclass(frozen=True)
class RecordedSteps:
    """Recorded steps against eager ones."""

    recorded: bool
    largest_difference: float  # of phi
    speedup: float


@dataclass(frozen=True)
class Findings:
    """What was found of each promise."""

    device: str
    versions: dict[str, str]
    works: dict[str, float | str]  # by method; a text says what went wrong
    waits_per_chunk: int
    bits: bool
    graphs: RecordedSteps
    abort: float | str
    speed: Figures


def measure(arguments: argparse.Namespace) -> Figures:
    """Everything, on this machine's accelerator."""
    device = choose_device()
    if device == "cpu":
        raise ValueError("torch sees no accelerator here; this command is for machines with a GPU")
    workload = scaled(WORKLOADS[arguments.model], arguments.sizes, arguments.batch_size)
    steps, rounds = arguments.steps, arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        workload.make_data(Path(folder))
        keys = {"inner_steps": 4, "seed": 1}
        small = scaled(WORKLOADS["demo"], "16,16", 8)
        small.make_data(Path(folder, "small"))
        tiny = small.config(Path(folder, "small"), **keys)
        config = workload.config(Path(folder))
        found = Findings(
            device=describe_device(device),
            versions=package_versions(),
            works=works(tiny, device),
            waits_per_chunk=count_waits(config, device),
            bits=same_bits(tiny, device),
            graphs=graphs(tiny, device),
            abort=measure_abort(device),
            speed=speed(config, device, steps, rounds),
        )
    Path(arguments.report).write_text(report(found))
    return {**asdict(found), "verdict": verdict(found), "report": arguments.report}


def phi_after(config: Config, device: str, steps: int) -> torch.Tensor:
    engine = LocalEngine(Problem.of(config), device)
    if steps:
        engine.run(0, steps)
    return engine.meta.phi.cpu()


def works(config: Config, device: str) -> dict[str, float | str]:
    """For every method: how far its phi is from the CPU's, over how far phi has moved."""
    differences: dict[str, float | str] = {}
    for name in (name for name, method in METHOD_CONFIGS.items() if method.trains):
        chosen = Config.model_validate({**config.model_dump(), "method": {"name": name}})
        try:
            differences[name] = apart(*(phi_after(chosen, *run) for run in (("cpu", 0), ("cpu", 5), (device, 5))))
        except Exception as error:  # whatever goes wrong with one method is what the report is for
            differences[name] = f"{type(error).__name__}: {error}"
    return differences


def apart(first: torch.Tensor, here: torch.Tensor, there: torch.Tensor) -> float:
    """How far `there` is from `here`, over how far `here` has come from `first`."""
    return float((there - here).norm() / (here - first).norm())


def count_waits(config: Config, device: str) -> int:
    """Synchronisations during a chunk of steps, the read at its end among them."""
    engine, module = LocalEngine(Problem.of(config), device), torch.get_device_module(device)
    engine.run(0, 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        module.set_sync_debug_mode("warn")
        try:
            engine.run(2, 6)
        finally:
            module.set_sync_debug_mode("default")
    return len(seen)


def same_bits(config: Config, device: str) -> bool:
    """Whether two runs with `deterministic: true` end with the same phi."""
    strict = config.model_copy(update={"deterministic": True})
    try:
        return torch.equal(phi_after(strict, device, 6), phi_after(strict, device, 6))
    finally:
        torch.use_deterministic_algorithms(False)


def graphs(config: Config, device: str) -> RecordedSteps:
    """The same steps eager and recorded."""
    recorded, phis, seconds = False, {}, {}
    for choice in ("off", "auto"):
        engine = LocalEngine(Problem.of(config.model_copy(update={"graphs": choice})), device)
        engine.run(0, 4)
        seconds[choice] = timed(lambda engine=engine: engine.run(4, 12), device)  # type: ignore[misc]
        phis[choice] = engine.meta.phi.cpu()
        recorded = engine.first.recorder is not None and engine.first.recorder.on
    difference = float((phis["auto"] - phis["off"]).abs().max())
    return RecordedSteps(recorded, difference, seconds["off"] / seconds["auto"])


def speed(config: Config, device: str, steps: int, rounds: int) -> Figures:
    """Steps per second of ours, of the limit, and of the obvious program, in turn."""
    from rayctsl.bench.obvious_device import ObviousOnDevice

    engine = LocalEngine(Problem.of(config), device)
    engine.run(0, 2)
    limit, obvious = Limit(config, device), ObviousOnDevice(config, device)
    for warm_up in (limit, obvious):
        warm_up(1)
    rates = []
    for done in range(2, 2 + rounds * steps, steps):
        ours = timed(lambda done=done: engine.run(done, done + steps), device)  # type: ignore[misc]
        fixed, plain = timed(lambda: limit(steps), device), timed(lambda: obvious(steps), device)
        seconds = {"steps_per_s": ours, "limit_steps_per_s": fixed, "obvious_steps_per_s": plain}
        rates.append({name: steps / taken for name, taken in seconds.items()})
    return summarise(rates)


class Limit:
    """The same inner steps on batches fixed in the device's memory, without meta-updates."""

    def __init__(self, config: Config, device: str):
        from rayctsl.learning.task_learner import InnerLearner

        held_out = build_method(config.method, config.seed).needs_held_out
        tasks = [build_image_task(n, config, needs_held_out=held_out, device=device) for n in config.data.tasks]
        self.learners = [InnerLearner(FixedTask(task), config) for task in tasks]

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            for learner in self.learners:
                learner.compute_gradient(0)
                learner.apply_gradient()


def timed(work: Callable[[], object], device: str) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def verdict(found: Findings) -> dict[str, str]:
    """What was kept of each promise, in a word."""
    wrong = [name for name, value in found.works.items() if isinstance(value, str) or not value < CLOSE]
    waits, abort = found.waits_per_chunk, found.abort
    return {
        "works": "yes" if not wrong else f"NO: {', '.join(wrong)}",
        "waits": "yes" if waits <= 1 else f"NO: {waits} waits in a chunk",
        "bits": "yes" if found.bits else "NO",
        "graphs": "yes" if found.graphs.recorded else "NO: nothing was recorded",
        "abort": abort if isinstance(abort, str) else "yes" if abort < 10 else f"NO: {abort:.0f} s",
    }


def report(found: Findings) -> str:
    """The report as Markdown."""
    speed = found.speed
    lines = [f"# rayctsl on {found.device}", "", "| promise | kept |", "|---|---|"]
    lines += [f"| {name} | {kept} |" for name, kept in verdict(found).items()]
    lines += ["", f"Steps per second: {speed['steps_per_s']:.3g}; {speed['efficiency']:.0%} of the limit, "]
    lines += [f"{speed['speedup_over_obvious']:.2g} times the obvious program.", "", "```"]
    lines += [f"{name}: {value}" for name, value in asdict(found).items()]
    return "\n".join([*lines, "```", ""])
