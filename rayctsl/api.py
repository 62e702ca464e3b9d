"""The Python side of the commands: train and fine-tune, with your own models and tasks as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from torch import nn

from rayctsl.config import Config, FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.flat import load_backbone
from rayctsl.learning.finetune import FinetuneResult
from rayctsl.learning.finetune import finetune as run_finetune
from rayctsl.learning.problem import Problem
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.tasks import ImageTask, ModelBuilder, Task
from rayctsl.methods import build_method
from rayctsl.models import build_model, find_head
from rayctsl.registry import Initialization, open_initialization


def train(
    config: Config,
    *,
    model: ModelBuilder | None = None,
    tasks: Mapping[str, Task | Dataset] | None = None,
    run_dir: str | Path | None = None,
    address: str | None = None,
) -> Initialization:
    """Meta-train on Ray and return the saved initialization.

    Args:
        model: your own model, as a function from the number of classes to a module with a named head.
        tasks: your own datasets (or tasks) by name, in place of the config's.
        address: None starts Ray here, "auto" joins the running cluster.
    """
    from rayctsl.cluster.engine import run_on_ray

    own = None
    if tasks is not None:
        held_out = build_method(config.method, config.seed).needs_held_out
        own = {
            name: ImageTask(task, config, needs_held_out=held_out, model=model) if isinstance(task, Dataset) else task
            for name, task in tasks.items()
        }
        config = config.model_copy(update={"data": config.data.model_copy(update={"tasks": tuple(own)})})
    base = run_dir or f"runs/{config.method.name}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = RunFolder.open(str(base), config)
    return run_on_ray(config, folder, Problem.of(config, model, own), address)


def load_initialization(
    path_or_id: str | Path,
    num_classes: int,
    *,
    root: str | None = None,
    model: ModelBuilder | None = None,
    seed: int = 0,
) -> nn.Module:
    """A torch module with the initialization's backbone and a fresh head for `num_classes`.

    Args:
        model: builds your own module from the number of classes, for initializations of your own models.
    """
    initialization = open_initialization(path_or_id, root)
    module = model(num_classes) if model else build_model(initialization.card.built_in, num_classes, seed)
    load_backbone(module, initialization.phi(), find_head(module))
    return module


def finetune(
    initialization: str | Path | Initialization | None,
    dataset: str | Dataset,
    *,
    config: FinetuneConfig | None = None,
    model: ModelBuilder | None = None,
    random_model: ModelConfig | None = None,
    data_root: str | None = None,
    storage: str | None = None,
    on_point: Callable[..., None] | None = None,
) -> FinetuneResult:
    """Fine-tune an initialization (None: random weights) on a dataset, several seeds, mean and 95 % interval.

    Args:
        model: builds your own model from the number of classes.
        random_model: what to build for random weights; an initialization's card says its own.
    """
    target = open_dataset(dataset, data_root) if isinstance(dataset, str) else dataset
    phi, name, built_in = None, "none", random_model or ModelConfig()
    if initialization is not None:
        opened = initialization
        if not isinstance(opened, Initialization):
            opened = open_initialization(opened, storage)
        phi, name = opened.phi(), opened.id
        built_in = opened.card.built_in if model is None else built_in

    def build(num_classes: int, seed: int) -> nn.Module:
        return model(num_classes) if model is not None else build_model(built_in, num_classes, seed)

    return run_finetune(target, build, config or FinetuneConfig(), phi=phi, initialization=name, on_point=on_point)
