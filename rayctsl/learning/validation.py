"""The objective of a sweep: accuracy after fine-tuning on images of the meta-training tasks that no trial trains on.

The test splits and the target datasets stay untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import ray
from torch import Tensor

from rayctsl.config import Config, FinetuneConfig
from rayctsl.data.batches import split_indices
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.store import Split
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.problem import Problem
from rayctsl.learning.tasks import ImageTask, Task
from rayctsl.methods import build_method
from rayctsl.models import build_model
from rayctsl.sweeps.config import Sweep


class PartOfSplit(Split):
    """Some images of a split, numbered anew."""

    def __init__(self, whole: Split, indices: np.ndarray):
        self.path, self.info = whole.path, replace(whole.info, count=len(indices))
        self.labels, self._whole, self._indices = whole.labels[indices], whole, indices

    def images(self, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return self._whole.images(self._indices[indices], out)

    def chunks(self) -> Iterator[np.ndarray]:
        yield self.images(np.arange(len(self)))


def divide(dataset: Dataset, sweep: Sweep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A training split's images in three: for meta-training, to fine-tune on, to measure on."""
    count, seed = len(dataset.train), sweep.seed
    seen, held_out = split_indices(count, sweep.validation.held_out, seed, f"{dataset.name}/validation")
    tuned, measured = split_indices(len(held_out), 0.5, seed, f"{dataset.name}/measured")
    return seen, held_out[tuned], held_out[measured][: sweep.validation.test_size]


def training_problem(config: Config, sweep: Sweep) -> Problem:
    """The config's problem without the images that validation keeps."""
    method = build_method(config.method, config.seed)

    def build_task(name: str, device: str) -> Task:
        whole = open_dataset(name, config.data.root)
        dataset = Dataset(name, PartOfSplit(whole.train, divide(whole, sweep)[0]), whole.test)
        return ImageTask(dataset, config, needs_held_out=method.needs_held_out, device=device)

    return Problem(config, method.select_tasks(config.data.tasks), build_task)


def validate(phi: Mapping[str, Tensor], config: Config, sweep: Sweep) -> float:
    """Mean accuracy in percent over all of the config's tasks, after fine-tuning phi on each."""
    validation = sweep.validation
    settings = {name: getattr(validation, name) for name in FinetuneConfig.model_fields}
    finetune = FinetuneConfig(**{**settings, "evaluate_every": validation.evaluate_every or validation.steps})
    model = config.model.model_copy(update={"weights": None})
    device = "cuda" if validation.gpus and ray.get_gpu_ids() else "cpu"
    accuracies = []
    for name in config.data.tasks:
        dataset = open_dataset(name, config.data.root)
        _, tuned, measured = divide(dataset, sweep)
        for seed in range(validation.seeds):
            module = build_model(model, dataset.num_classes, seed)
            parts = {"train_indices": tuned, "test_indices": measured}
            tuner = Finetuner(module, dataset, finetune, seed=seed, phi=phi, device=device, **parts)
            tuner.run()
            accuracies.append(100 * tuner.curve[-1].accuracy)
    return float(np.mean(accuracies))
