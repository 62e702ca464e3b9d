"""What a cell of an image experiment computes, in one process: a trial, a training, a fine-tuning."""

from __future__ import annotations

import io
import tempfile
from collections import Counter

import torch
from safetensors.torch import save_file
from torch import Tensor

from rayctsl.card import PHI
from rayctsl.config import Config, FinetuneConfig, ValidationConfig, build_config, dump_config
from rayctsl.data.library import open_dataset
from rayctsl.device import choose_device
from rayctsl.experiments.image.records import (
    KeptPhi,
    TestArguments,
    TrainArguments,
    TrainResult,
    TuneArguments,
    TuneResult,
)
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.meta_learner import kept_phi
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import Hooks, Run, train_with
from rayctsl.learning.run_folder import CONFIG, RunFolder
from rayctsl.learning.task_learner import COUNTED
from rayctsl.learning.validation import training_problem, validate
from rayctsl.models import build_model
from rayctsl.registry import Initialization, open_initialization, save_initialization
from rayctsl.storage import Storage


def tune(arguments: TuneArguments) -> TuneResult:
    """Train with a candidate and score phi on images of the meta-training tasks that it did not see."""
    config, seed = build_config(arguments["config"]), arguments["seed"]
    validation = ValidationConfig.model_validate(arguments["validation"])
    device, spent = prepare_device(arguments["gpus"]), Counter[str]()

    def trained(config: Config) -> dict[str, Tensor]:
        engine = LocalEngine(training_problem(config, validation, seed), device)
        engine.run(0, config.total_steps)
        spent.update(_spent(engine))
        return engine.name_phi(kept_phi(engine.meta.state()))

    try:
        with tempfile.TemporaryDirectory() as folder:
            begun = config
            if "start" in arguments:
                save_file(trained(build_config(arguments["start"])), f"{folder}/{PHI}")
                begun = _starting_from(f"{folder}/{PHI}", config)
            phi = trained(begun)
    except NonFiniteLoss as error:
        return {"accuracy": None, "diverged": str(error)}
    return {"accuracy": validate(phi, config, validation, seed, device), "spent": dict(spent)}


def train(arguments: TrainArguments, out: str) -> TrainResult:
    """Meta-train, keeping phi at the checkpoints and at the end; goes on from snapshots of an earlier attempt.

    Returns the loss averaged over tasks and over every K steps, and a point for every phi that was kept.
    """
    config, storage = build_config(arguments["config"]), Storage(out).inside(arguments["run"])
    device, before = prepare_device(arguments["gpus"]), dict[str, int]()
    if "start" in arguments:
        start = _trained(build_config(arguments["start"]), Storage(out).inside(f"{arguments['run']}-start"), device)
        config, before = _starting_from(f"{start.path}/{PHI}", config), start.card.spent
    keeper, diverged = Keeper(storage, arguments["checkpoints"]), None
    try:
        _trained(config, storage, device, Hooks(after_chunk=keeper.keep))
    except NonFiniteLoss as error:
        diverged = str(error)
    run = keeper.run
    points = [
        _kept(open_initialization(str(storage.inside(f"checkpoint-{step}"))), arguments, f"checkpoint-{step}", step)
        for step in arguments["checkpoints"]
        if storage.exists(f"checkpoint-{step}/card.json") and step <= run.step
    ]
    if diverged is None:
        points.append(_kept(open_initialization(str(storage)), arguments, "initialization", run.total))
    for point in points:
        point["spent"] = {kind: count + before.get(kind, 0) for kind, count in point["spent"].items()}
    storage.delete_folder("checkpoints")  # to compute a finished cell again means from the beginning
    losses = [[steps + before.get("inner", 0), loss] for steps, loss in _losses(run)]
    return {"points": points, "losses": losses, "diverged": diverged}


def _trained(config: Config, storage: Storage, device: str, hooks: Hooks | None = None) -> Initialization:
    """A run in a folder, from the snapshots of an earlier attempt on."""
    problem, folder = Problem.of(config), _open_run(storage, config)
    engine = LocalEngine(problem, device)
    return train_with(engine, problem, folder, hooks=hooks, log=io.StringIO(), stop_on_signals=False)


def _starting_from(weights: str, config: Config) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update={"weights": weights})})


class Keeper:
    """Saves phi at the checkpoints of a run."""

    run: Run

    def __init__(self, storage: Storage, checkpoints: list[int]):
        self.storage, self.checkpoints = storage, checkpoints

    def keep(self, run: Run) -> None:
        self.run = run
        name = f"checkpoint-{run.step}"
        if run.step in self.checkpoints and not self.storage.exists(f"{name}/card.json"):
            phi = run.engine.name_phi(kept_phi(run.engine.capture(run.step).result().meta))
            save_initialization(self.storage.inside(name), phi, run.config, spent=run.spent, metrics={})


def test(arguments: TestArguments, out: str) -> float:
    """Fine-tune a kept phi on a target; accuracy on the target's test images in percent."""
    initialization = open_initialization(str(Storage(out).inside(arguments["initialization"])))
    if initialization.card.sha256 != arguments["sha256"]:
        raise ValueError(f"{initialization.storage} is not what the training left; delete its cell to train again")
    device = prepare_device(arguments["gpus"])
    dataset = open_dataset(arguments["target"], arguments["root"])
    module = build_model(initialization.card.built_in, dataset.num_classes, arguments["seed"])
    recipe = FinetuneConfig.model_validate(arguments["finetune"])
    recipe = recipe.model_copy(update={"evaluate_every": recipe.steps})
    tuner = Finetuner(module, dataset, recipe, seed=arguments["seed"], phi=initialization.phi(), device=device)
    tuner.run()
    return 100 * tuner.curve[-1].accuracy


def prepare_device(gpus: float) -> str:
    """Where a cell computes: on its GPU if it has reserved one, else on one CPU thread."""
    torch.set_num_threads(1)
    return choose_device(granted=bool(gpus))


def _open_run(storage: Storage, config: Config) -> RunFolder:
    """The folder of an earlier attempt at the same config, else an empty one."""
    same = storage.exists(CONFIG) and storage.read(CONFIG).decode() == dump_config(config)
    if storage.exists() and not same:
        storage.delete_folder("")
    return RunFolder.open(str(storage), config, resume="if_exists")


def _spent(engine: LocalEngine) -> dict[str, int]:
    return dict(zip(COUNTED, (int(count) for count in engine.group.counts()), strict=True))


def _kept(initialization: Initialization, arguments: TrainArguments, folder: str, step: int) -> KeptPhi:
    card = initialization.card
    return KeptPhi(step=step, path=f"{arguments['run']}/{folder}", sha256=card.sha256, spent=card.spent)


def _losses(run: Run) -> list[list[float]]:
    """[inner steps spent over all tasks, task-average loss], a mean for every trajectory or 20th of the run."""
    rows = run.metrics.rows
    width = max(run.config.inner_steps, run.total // 20, 1)
    curve = []
    for start in range(0, run.total, width):
        part = [row for row in rows if start < row["step"] <= start + width]
        if part:
            mean = sum(row["loss"] for row in part) / len(part)
            curve.append([float(part[-1]["inner_steps_total"]), round(mean, 5)])
    return curve
