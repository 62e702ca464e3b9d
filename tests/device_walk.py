"""One walk through everything that a run does with a device: train, snapshot, resume, drop, fine-tune, validate, job.

`walk` takes it with the engines that it is given, so that what a device or a transport leaves can be compared with what
the CPU leaves in one process.
"""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rayctsl.config import METHOD_CONFIGS, Config, FinetuneConfig, ValidationConfig, build_config
from rayctsl.data.library import open_dataset
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.jobs.files import SPEC
from rayctsl.jobs.job import run_job
from rayctsl.learning.engine import Engine
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.meta_learner import kept_phi
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Hooks, Run, train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.tasks import ImageTask
from rayctsl.learning.validation import validate
from rayctsl.methods import build_method
from rayctsl.models import build_model
from rayctsl.registry import save_initialization
from rayctsl.storage import Storage

TASKS = ("grey", "colour", "bad")  # the last one diverges at inner step BAD_FROM
BAD_FROM, STOPPED_AT, STEPS = 3, 4, 6
RECIPE = FinetuneConfig(steps=2, batch_size=8, evaluate_every=1, alpha=0.01, seeds=1)
VALIDATION = ValidationConfig(steps=2, batch_size=8, alpha=0.01, held_out=0.5)


def make_data(root: Path) -> str:
    random = np.random.default_rng(0)
    for name in TASKS:
        shape = (8, 8, 1 if name == "grey" else 3)
        for part in ("train", "test"):
            images = random.integers(0, 256, (40, *shape), dtype=np.uint8)
            info = SplitInfo(name, part, shape, tuple("abcd"))
            write_split(root / name / f"{part}.arrow", images, np.arange(40) % 4, info)
    return str(root)


class Diverging(ImageTask):
    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        loss = super().loss(module, index, held_out=held_out)
        return loss * math.nan if index >= BAD_FROM else loss


@dataclass(frozen=True)
class BuildTask:
    """Builds the walk's tasks in whatever process asks for them."""

    config: Config

    def __call__(self, name: str, device: str) -> ImageTask:
        kind = Diverging if name == "bad" else ImageTask
        held_out = build_method(self.config.method).needs_held_out
        return kind(open_dataset(name, self.config.data.root), self.config, needs_held_out=held_out, device=device)


def problem_of(method: str, root: str, **topology: Any) -> Problem:
    options = {"source": "grey"} if method == "single" else {"beta": 0.05} if METHOD_CONFIGS[method].trains else {}
    config = build_config(
        {
            "inner_steps": 3,
            "trajectories": STEPS // 3,
            "snapshot_every": 2,
            "log_every": 1,
            "on_non_finite": "drop",
            "tensorboard": False,
            "model": {"name": "resnet8", "width": 4},
            "data": {"tasks": list(TASKS), "root": root, "batch_size": 8},
            "method": {"name": method, **options},
            "topology": topology,
        }
    )
    names = build_method(config.method).select_tasks(TASKS)
    workers = min(config.topology.workers or 1, len(names))  # `single` has one task
    config = config.model_copy(update={"topology": config.topology.model_copy(update={"workers": workers})})
    return Problem(config, names, BuildTask(config))


@dataclass(frozen=True)
class Outcome:
    """What a walk leaves, every column's numbers; `devices` are those on which it learned and fine-tuned."""

    devices: set[str]
    phi: dict[str, Tensor]  # train, snapshot, resume
    losses: np.ndarray  # of all steps and tasks, NaN from where one was dropped
    dropped: set[str]
    finetuned: list[float]
    validated: float
    job: tuple[float, float]


def walk(problem: Problem, build_engine: Callable[[Problem], Engine], folder: Path) -> Outcome:
    """Train to STOPPED_AT and stop; resume from the snapshot in another engine; then use what was learned."""
    base, devices, used = str(folder / uuid.uuid4().hex[:8]), set[str](), dict[str, Any]()
    with Run(build_engine(problem), problem, RunFolder.open(base, problem.config), io.StringIO()) as run:
        for step in run.chunks():
            devices.add(run.engine.on_learner(str))
            if step >= min(STOPPED_AT, run.total):
                break

    def at_the_end(run: Run) -> None:
        if run.step == run.total and not used:
            devices.add(run.engine.on_learner(str))
            state = run.engine.capture(run.step).result()
            phi = run.engine.name_phi(kept_phi(state.meta))
            used["dropped"] = {name for name in problem.task_names if state.tasks[name]["dropped"].item()}
            used["finetuned"] = run.engine.on_learner(partial(tune, phi, problem.config))
            grey = problem.config.model_copy(
                update={"data": problem.config.data.model_copy(update={"tasks": ("grey",)})}
            )
            used["validated"] = run.engine.on_learner(partial(validate, phi, grey, VALIDATION, 0))
            used["job"] = run.engine.on_learner(partial(do_job, phi, problem.config, f"{base}-job"))
            used["losses"] = np.array([run.metrics.curves.get(name, []) for name in problem.task_names])

    resumed = RunFolder.open(base, resume="must")
    hooks = Hooks(after_chunk=at_the_end)
    made = train_with(build_engine(problem), problem, resumed, hooks=hooks, log=io.StringIO(), stop_on_signals=False)
    return Outcome(devices, made.phi(), **used)


def tune(phi: dict[str, Tensor], config: Config, device: str) -> list[float]:
    """The losses of a fine-tuning on a device."""
    dataset = open_dataset("colour", config.data.root)
    module = build_model(config.model, dataset.num_classes, 0)
    tuner = Finetuner(module, dataset, RECIPE, seed=0, phi=phi, device=device)
    tuner.run()
    return [point.loss for point in tuner.curve]


def do_job(phi: dict[str, Tensor], config: Config, base: str, device: str) -> tuple[float, float]:
    """Loss and accuracy of a job on a device."""
    made = save_initialization(Storage(base).inside("initialization"), phi, config, spent={}, metrics={})
    source = {"id": made.id, "sha256": made.card.sha256, "path": str(made.storage)}
    spec = {
        "dataset": "colour",
        "data_root": config.data.root,
        "initialization": source,
        "seed": 3,
        "compare_with_scratch": False,
        "config": RECIPE.model_dump(mode="json"),
    }
    job = Storage(base).inside("job")
    job.write(SPEC, json.dumps(spec).encode())
    outcome = run_job(job, 1, device=device)
    assert outcome.result is not None, outcome.error
    return outcome.result.loss, outcome.result.accuracy
