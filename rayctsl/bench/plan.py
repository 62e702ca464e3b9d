"""A planner: what a run would take on a cluster that is not here.

The tasks' costs are measured here (CPU learners), or follow from the floating-point operations of a step and an assumed
speed (GPUs). `cost_model.py` does the rest; `plan_check.py` compares its predictions with runs that are possible here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
import torch.nn.functional as F

from rayctsl.bench.cost_model import Cluster, PlannedWork, RunForecast, predict
from rayctsl.bench.machine import CPU_MEET_SECONDS, memory_bandwidth, touch_seconds
from rayctsl.bench.rounds import Figures
from rayctsl.config import Config, load_config

PROBE_BATCH = 4  # operations and memory are proportional to the batch: counted on a small one
GIGABIT = 1e9 / 8
GPU_MEMORY_PASSES = 10  # reads and writes of a vector per task and meta-update
GPU_MEMORY_BANDWIDTH = 1e12
GPU_BASE_BYTES = 6e8  # a CUDA context
CPU_BASE_BYTES = 3.2e8  # Python, torch and Ray
BACKWARD_FACTOR = (
    1.4  # peak memory of a step over what its forward pass keeps, measured on ResNet-20 at 32 and 64 pixels
)


@dataclass(frozen=True)
class TaskCost:
    """One task's inner step. Example: TaskCost(pixels=32, gflop=31.5, activation_bytes=3.1e8, seconds=0.5)"""

    pixels: int
    gflop: float
    activation_bytes: float
    seconds: float | None = None  # measured here on one core


@dataclass(frozen=True)
class PlannedRun:
    """One combination of what was asked for, and what it would take."""

    workers: int
    tasks: int
    gigabits: float
    shift_delay: int
    nodes: int
    prediction: RunForecast

    def figures(self) -> Figures:
        own = {name: value for name, value in self.__dict__.items() if name != "prediction"}
        return {**own, **asdict(self.prediction)}


def measure(arguments: argparse.Namespace) -> Figures:
    """Predictions for every number of workers, bandwidth and shift_delay asked for, with what they assume."""
    if arguments.check:
        from rayctsl.bench.plan_check import check

        return check(arguments.rounds)
    config = load_config(arguments.config)
    costs = task_costs(config, measured=not arguments.gpus)
    rows = []
    for workers in (int(count) for count in arguments.workers.split(",")):
        for gigabits in (float(value) for value in arguments.bandwidth.split(",")):
            for delay in (0, 1):
                job = job_of(config, costs, max(workers, arguments.tasks or 0), delay, arguments)
                cluster = cluster_of(workers, gigabits, job.floats, arguments)
                rows.append(PlannedRun(workers, len(job.costs), gigabits, delay, cluster.nodes, predict(job, cluster)))
    assumptions = assumptions_of(arguments, config)
    if arguments.markdown:
        print(as_markdown(rows, assumptions), file=sys.stderr if arguments.json else sys.stdout)
    by_task = {name: asdict(cost) for name, cost in costs.items()}
    return {"rows": [row.figures() for row in rows], "task_costs": by_task, "assumptions": assumptions}


def task_costs(config: Config, measured: bool) -> dict[str, TaskCost]:
    """Operations, memory and, when asked for, seconds of each of the config's tasks."""
    from rayctsl.learning.processor import keep_freed_memory
    from rayctsl.models import build_model

    torch.set_num_threads(1)
    keep_freed_memory()
    model = config.model.model_copy(update={"weights": None})
    by_pixels: dict[int, TaskCost] = {}
    costs = {}
    for name in config.data.tasks:
        pixels = image_size(name, config.data.root)
        if pixels not in by_pixels:
            module = build_model(model, 100, seed=0).train()
            by_pixels[pixels] = count_step(module, pixels, config.data.batch_size)
            if measured:
                seconds = time_step(module, pixels, config.data.batch_size)
                by_pixels[pixels] = replace(by_pixels[pixels], seconds=seconds)
        costs[name] = by_pixels[pixels]
    return costs


def image_size(name: str, root: str | None) -> int:
    """Pixels of a dataset: of the prepared one, else the catalog's."""
    from rayctsl.data.catalog import find_entry, parse_reference
    from rayctsl.data.library import open_dataset

    reference = parse_reference(name)
    if reference.size is not None:
        return reference.size
    try:
        return open_dataset(name, root).train.info.shape[0]
    except ValueError:
        return find_entry(reference.name).size


def count_step(module: torch.nn.Module, pixels: int, batch_size: int) -> TaskCost:
    """Operations of forward and backward, and the memory that they need for activations."""
    from torch.utils.flop_counter import FlopCounterMode

    parameters = {parameter.data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in parameters:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    images, labels = torch.zeros(PROBE_BATCH, 3, pixels, pixels), torch.zeros(PROBE_BATCH, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = F.cross_entropy(module(images), labels)
        loss.backward()
    scale = batch_size / PROBE_BATCH
    return TaskCost(pixels, counter.get_total_flops() * scale / 1e9, BACKWARD_FACTOR * scale * sum(kept.values()))


def time_step(module: torch.nn.Module, pixels: int, batch_size: int, steps: int = 2) -> float:
    """Seconds of forward, backward and update on one core here."""
    from rayctsl.config import InnerConfig
    from rayctsl.flat import FlatModule, build_optimizer

    flat = FlatModule(module)
    optimizer = build_optimizer(InnerConfig(), flat.vector)
    images = torch.randn(batch_size, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
    labels, started = torch.zeros(batch_size, dtype=torch.int64), 0.0
    for step in range(-1, steps):
        if step == 0:
            started = time.perf_counter()
        flat.grad.zero_()
        F.cross_entropy(module(images), labels).backward()
        flat.vector.add_(optimizer.direction(flat.vector, flat.grad), alpha=-1e-3)
    return (time.perf_counter() - started) / steps


def job_of(
    config: Config, costs: dict[str, TaskCost], tasks: int, delay: int, arguments: argparse.Namespace
) -> PlannedWork:
    """The config's run over at least `tasks` tasks: beyond the config's own, tasks of the same sizes follow."""
    from rayctsl.models import build_model, find_head

    names = list(costs)
    many = {f"{names[n % len(names)]}-{n // len(names)}": names[n % len(names)] for n in range(max(tasks, len(names)))}
    module = build_model(config.model.model_copy(update={"weights": None}), 2, seed=0)
    head = find_head(module)
    floats = sum(value.numel() for name, value in module.named_parameters() if not name.startswith(f"{head}."))

    def seconds(cost: TaskCost) -> float:
        if arguments.gpus:
            return arguments.launch_ms / 1000 + cost.gflop / arguments.gpu_gflops
        assert cost.seconds is not None
        return cost.seconds

    return PlannedWork(
        costs={name: seconds(costs[source]) for name, source in many.items()},
        floats=floats,
        inner_steps=config.inner_steps,
        trajectories=config.trajectories,
        steps_per_update=steps_per_update(config),
        shift_delay=delay,
        task_bytes={name: costs[source].activation_bytes for name, source in many.items()},
    )


def steps_per_update(config: Config) -> float:
    """Inner steps per meta-update of the config's method."""
    from rayctsl.methods import Step, build_method

    method, steps = build_method(config.method, config.seed), config.inner_steps
    return steps / max(1, sum(method.updates_at(Step(0, k, steps)) for k in range(1, steps + 1)))


def cluster_of(workers: int, gigabits: float, floats: int, arguments: argparse.Namespace) -> Cluster:
    link = {"bandwidth": gigabits * GIGABIT, "latency": arguments.latency_us / 1e6}
    if arguments.gpus:
        touch = GPU_MEMORY_PASSES * 4 / GPU_MEMORY_BANDWIDTH
        inside = arguments.node_gigabytes * 1e9
        return Cluster(
            workers,
            arguments.gpus,
            direct=True,
            inner_bandwidth=inside,
            touch_seconds=touch,
            base_bytes=GPU_BASE_BYTES,
            **link,
        )
    return Cluster(
        workers,
        arguments.cores,
        memory_bandwidth=memory_bandwidth(),
        touch_seconds=touch_seconds(floats),
        meet_seconds=CPU_MEET_SECONDS,
        base_bytes=CPU_BASE_BYTES,
        **link,
    )


def assumptions_of(arguments: argparse.Namespace, config: Config) -> Figures:
    link = {"latency_us": arguments.latency_us, "inner_steps": config.inner_steps, "trajectories": config.trajectories}
    if arguments.gpus:
        own: Figures = {
            "gpus_per_node": arguments.gpus,
            "gpu_gflops_achieved": arguments.gpu_gflops,
            "launch_ms_per_step": arguments.launch_ms,
            "GB_per_s_inside_a_node": arguments.node_gigabytes,
            "all_reduce": "NCCL over all GPUs, ring or tree, over one link per node",
        }
    else:
        own = {"cores_per_node": arguments.cores, "all_reduce": "shared memory in a node, gloo ring between nodes"}
    return {**own, **link, "model": config.model.name, "batch_size": config.data.batch_size}


def as_markdown(rows: Sequence[PlannedRun], assumptions: Figures) -> str:
    """The rows as a table, the assumptions above it."""
    lines = ["Assumed: " + ", ".join(f"{name} {value}" for name, value in assumptions.items()) + ".", ""]
    heads = ["learners", "tasks", "Gbit/s", "shift_delay", "steps/s", "hours", "work ms", "exchange ms"]
    heads += ["utilisation", "MB per step and link", "TB moved", "GB per learner"]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        p = row.prediction
        cells = [str(row.workers), str(row.tasks), f"{row.gigabits:g}", str(row.shift_delay), f"{p.steps_per_s:.3g}"]
        cells += [f"{p.hours:.3g}", f"{1000 * p.compute_s:.3g}", f"{1000 * p.exchange_s:.3g}", f"{p.utilisation:.0%}"]
        cells += [
            f"{p.bytes_per_step / 1e6:.3g}",
            f"{p.bytes_between_nodes / 1e12:.3g}",
            f"{p.learner_bytes / 1e9:.2g}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
