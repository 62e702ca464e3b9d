"""The Python side of the commands: train and fine-tune, with your own models and tasks as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from torch import nn

from rayctsl.config import Config, FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset
from rayctsl.data.pictures import find_dataset
from rayctsl.flat import load_backbone
from rayctsl.jobs.classify import Prediction, classify, find_images
from rayctsl.jobs.saved_model import SavedModel, open_model
from rayctsl.jobs.training import Asked, finetune_seeds, suggested_recipe
from rayctsl.learning.finetune import CurvePoint, FinetuneResult
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.start import Start, find_start, start_from
from rayctsl.learning.surroundings import settled
from rayctsl.learning.tasks import ModelBuilder, Task
from rayctsl.models import build_model, find_head
from rayctsl.models.own import UserModel
from rayctsl.registry import Initialization, open_initialization

_trained: dict[str, str] = {}  # id -> path, of what this process has trained wherever it was put


def train(
    config: Config | None = None,
    *,
    model: ModelBuilder | None = None,
    head: str | None = None,
    tasks: Mapping[str, Task | Dataset] | None = None,
    run_dir: str | Path | None = None,
    resume: str | Path | None = None,
    engine: Literal["ray", "local"] = "ray",
    address: str | None = None,
) -> Initialization:
    """Meta-train and return the saved initialization.

    Args:
        model: your own model, as a function from the number of classes to a module. It is given images of
            `data.channels` channels.
        head: the name of your model's last layer; `head`, `fc` and `classifier` are found without.
        tasks: your own datasets (or tasks) by name, in place of the config's.
        run_dir: a new folder or URI; `runs/<method>-<time>` when absent.
        resume: continue the run in this folder, with its own config; give model and tasks again.
        engine: "local" trains in this process, without Ray.
        address: of Ray; None starts it here, "auto" joins the running cluster.
    """
    user = UserModel(model, head) if model is not None else None
    if resume is not None:
        if config is not None or run_dir is not None:
            raise ValueError("a resumed run has a config and a folder of its own: leave out config and run_dir")
        folder = RunFolder.open(str(resume), resume="must")
    else:
        config = _with_own(config or Config(), user, tasks)
        config = settled(config) if tasks is None else config
        base = run_dir or f"runs/{config.method.name}-{datetime.now():%Y%m%d-%H%M%S}"
        folder = RunFolder.open(str(base), config)
    config, build = folder.config, None
    if user is not None:
        user.channels = config.data.channels
        build = partial(user, seed=config.seed)
    problem = Problem.of(config, build, tasks)
    with folder.deleted_unless_begun():
        initialization = _run(problem, folder, engine, address)
    _trained[initialization.id] = initialization.path
    return initialization


def _run(problem: Problem, folder: RunFolder, engine: Literal["ray", "local"], address: str | None) -> Initialization:
    if engine == "local":
        return run_local(problem.config, folder, problem)
    from rayctsl.cluster.engine import run_on_ray

    return run_on_ray(problem.config, folder, problem, address)


def _with_own(config: Config, user: UserModel | None, tasks: Mapping[str, Task | Dataset] | None) -> Config:
    """The config that names what the caller brings."""
    own = user.class_name if user is not None else None
    if tasks is not None:
        config = config.model_copy(update={"data": config.data.model_copy(update={"tasks": tuple(tasks)})})
        task = next((task for task in tasks.values() if not isinstance(task, Dataset)), None)
        if task is not None:  # which builds its module itself
            kind = type(task.build_module())
            own = f"{kind.__module__}.{kind.__qualname__}"
    return config.model_copy(update={"model": config.model.model_copy(update={"own": own})})


def load_initialization(
    path_or_id: str | Path | Initialization,
    num_classes: int,
    *,
    root: str | None = None,
    model: ModelBuilder | None = None,
    head: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """A torch module with the initialization's backbone and a fresh head for `num_classes`.

    Args:
        root: the storage in which an id is looked for; RAYCTSL_STORAGE and `runs` here when absent.
        model: builds your own module from the number of classes, for initializations of your own models.
        head: the name of your own module's last layer.
    """
    initialization = _open(path_or_id, root)
    module = model(num_classes) if model else build_model(initialization.card.built_in, num_classes, seed)
    load_backbone(module, initialization.phi(), find_head(module, head))
    return module


def finetune(
    initialization: str | Path | Initialization | Start | None,
    dataset: str | Dataset,
    *,
    config: FinetuneConfig | None = None,
    model: ModelBuilder | None = None,
    head: str | None = None,
    random_model: ModelConfig | None = None,
    data_root: str | None = None,
    storage: str | None = None,
    on_point: Callable[[int, CurvePoint], None] | None = None,
    save: str | Path | None = None,
    each: bool = False,
    preset: str | None = None,
    time_limit: float | None = None,
    workers: int | None = 1,
    threads: int | None = None,
) -> FinetuneResult:
    """Fine-tune an initialization (None: random weights) on a dataset, several seeds, mean and 95 % interval.

    Args:
        initialization: a folder, an id, `zoo/…`, `hf-hub:…`, `timm/…` or `imagenet` (weights that exist elsewhere).
        config: the recipe; the one that the initialization's card names when absent.
        model: builds your own model from the number of classes.
        head: the name of your own model's last layer.
        random_model: what to build for random weights; an initialization's card says its own.
        save: a new folder for the best seed's model (`each`: a folder a seed); the same call goes on after an end.
        preset: quick, good or best chooses learning rate and steps on held-out training images.
        time_limit: seconds for all of it, about.
        workers: processes for the seeds; 1 is this one, None as many as GPUs or cores allow.
        threads: of each process; by default the cores are shared out.
    """
    target = find_dataset(dataset, data_root) if isinstance(dataset, str) else dataset
    user = UserModel(model, head) if model is not None else None
    start: Start
    if initialization is None:
        start = Start("none", random_model or ModelConfig(), own=user)
    elif isinstance(initialization, Start):
        start = initialization
    elif user is not None or isinstance(initialization, Initialization) or str(initialization) in _trained:
        start = start_from(_open(initialization, storage), user)
    else:
        start = find_start(str(initialization), random_model, storage)
    place = None if save is None else str(save)
    asked = Asked(config or start.recipe or FinetuneConfig(), preset, time_limit)
    recipe = suggested_recipe(start, target, asked, save=place)
    return finetune_seeds(
        start, target, recipe, asked=asked, save=place, each=each, workers=workers, threads=threads, on_point=on_point
    )


def predict(model: str | Path | SavedModel, images: str | Path | Iterable[str | Path]) -> list[Prediction]:
    """Class names and probabilities of image files and of all images in folders, likeliest first.

    Args:
        model: what `finetune(..., save=)` made: a folder, its weights file, or `hf-hub:<owner>/<name>`.
    """
    opened = model if isinstance(model, SavedModel) else open_model(model)
    sources = [images] if isinstance(images, (str, Path)) else images
    return list(classify(opened.finetuned, find_images(str(source) for source in sources)))


def _open(where: str | Path | Initialization, root: str | None) -> Initialization:
    if isinstance(where, Initialization):
        return where
    return open_initialization(where if root else _trained.get(str(where), where), root)
