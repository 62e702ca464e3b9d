"""`rayctsl train --dry-run`: what a run would do, and about how long and how much memory it would take here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rayctsl.progress import duration, say

if TYPE_CHECKING:
    from rayctsl.config import Config

PROCESS_BYTES = 450e6  # of a learner with nothing loaded but the program


def describe(config: Config) -> str:
    """Steps, parameters, and estimates from a few steps that are measured on one core; no dataset is needed."""
    missing = check_names(config)
    say("measuring a few steps")
    from rayctsl.bench.plan import task_costs
    from rayctsl.cluster.packing import pack
    from rayctsl.methods import build_method

    tasks = build_method(config.method, config.seed).select_tasks(config.data.tasks)
    costs = {name: cost for name, cost in task_costs(config, measured=True).items() if name in tasks}
    learners = min(config.topology.workers or os.cpu_count() or 1, len(tasks))
    seconds = {name: cost.seconds or 0.0 for name, cost in costs.items()}
    shares = pack(seconds, learners).learners
    step = max(sum(seconds[name] for name in names) for names in shares)
    size = num_parameters(config)
    memory = learners * PROCESS_BYTES + sum(cost.activation_bytes for cost in costs.values()) / len(costs) * learners
    memory += 4.0 * size * (3 * len(tasks) + 4 * learners)
    total = config.total_steps
    lines = [
        f"{config.method.name}, beta {config.method.beta:g}, on {len(tasks)} tasks: {', '.join(tasks)}",
        f"{config.trajectories:,} trajectories of {config.inner_steps:,} inner steps: {total:,} steps of each task",
        f"{config.model.name}: {size:,} parameters of the backbone",
        f"on {learners} CPU learners here: about {1000 * step:.0f} ms a step, {duration(step * total)} in all, "
        f"{memory / 1e9:.1f} GB of memory, {4 * size * (2 + 2 * len(tasks)) / 1e6:.0f} MB a snapshot",
        "nothing was written or started; rayctsl bench plan predicts other machines",
    ]
    if missing:
        lines.append(f"not prepared yet: rayctsl data prepare {' '.join(missing)}")
    return "\n".join(lines)


def check_names(config: Config) -> list[str]:
    """Refuse names of models and datasets that nobody knows; returns the datasets that have yet to be prepared."""
    from rayctsl.config import check_model_name
    from rayctsl.data.names import NotPrepared, check_name

    if config.model.own is None:
        check_model_name(config.model.name)
    missing = []
    for name in config.data.tasks:
        try:
            check_name(name, config.data.root)
        except NotPrepared:
            missing.append(name)
    return missing


def num_parameters(config: Config) -> int:
    from rayctsl.models import build_model, find_head

    module = build_model(config.model.model_copy(update={"weights": None}), 2, config.seed)
    head = f"{find_head(module)}."
    return sum(value.numel() for name, value in module.named_parameters() if not name.startswith(head))
