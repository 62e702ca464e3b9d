"""The objective of searches: accuracy after fine-tuning on images of the meta-training tasks that no trial trains on.

The test splits and the target datasets stay untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from rayctsl.config import Config, FinetuneConfig, ValidationConfig
from rayctsl.data.batches import split_indices
from rayctsl.data.library import Dataset
from rayctsl.data.store import Split
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.problem import Problem
from rayctsl.learning.surroundings import open_data
from rayctsl.learning.tasks import ImageTask, Task
from rayctsl.methods import build_method
from rayctsl.models import build_model


class PartOfSplit(Split):
    """Some images of a split, numbered anew."""

    def __init__(self, whole: Split, indices: np.ndarray):
        self.path, self.info = whole.path, replace(whole.info, count=len(indices))
        self.labels, self._whole, self._indices = whole.labels[indices], whole, indices

    def __reduce__(self) -> tuple[type[PartOfSplit], tuple[Split, np.ndarray]]:
        return PartOfSplit, (self._whole, self._indices)  # in another process, too, some images and not all

    def images(self, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return self._whole.images(self._indices[indices], out)

    def chunks(self) -> Iterator[np.ndarray]:
        yield self.images(np.arange(len(self)))


def divide(dataset: Dataset, validation: ValidationConfig, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A training split's images in three: for meta-training, to fine-tune on, to measure on."""
    seen, held_out = split_indices(len(dataset.train), validation.held_out, seed, f"{dataset.name}/validation")
    tuned, measured = split_indices(len(held_out), 0.5, seed, f"{dataset.name}/measured")
    return seen, held_out[tuned], held_out[measured][: validation.test_size]


def training_problem(config: Config, validation: ValidationConfig, seed: int) -> Problem:
    """The config's problem without the images that validation keeps.

    Args:
        seed: of the division, which is not the run's: all runs of a search are judged on the same images.
    """
    method = build_method(config.method, config.seed)

    def build_task(name: str, device: str) -> Task:
        whole = open_data(name, config)
        dataset = Dataset(name, PartOfSplit(whole.train, divide(whole, validation, seed)[0]), whole.test)
        return ImageTask(dataset, config, needs_held_out=method.needs_held_out, device=device)

    return Problem(config, method.select_tasks(config.data.tasks), build_task)


def validate(
    phi: Mapping[str, Tensor], config: Config, validation: ValidationConfig, seed: int, device: str = "cpu"
) -> float:
    """Mean accuracy in percent over all of the config's tasks, after fine-tuning phi on each."""
    settings = {name: getattr(validation, name) for name in FinetuneConfig.model_fields}
    finetune = FinetuneConfig(**{**settings, "evaluate_every": validation.evaluate_every or validation.steps})
    model = config.model.model_copy(update={"weights": None})
    accuracies = []
    for name in config.data.tasks:
        dataset = open_data(name, config)
        _, tuned, measured = divide(dataset, validation, seed)
        for number in range(validation.seeds):
            module = build_model(model, dataset.num_classes, number)
            parts = {"train_indices": tuned, "test_indices": measured}
            tuner = Finetuner(module, dataset, finetune, seed=number, phi=phi, device=device, **parts)
            tuner.run()
            accuracies.append(100 * tuner.curve[-1].accuracy)
    return float(np.mean(accuracies))
