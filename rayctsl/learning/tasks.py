"""A task: something with a module to train and a loss for every step.

`ImageTask` is a dataset with a model; the synthetic surfaces and tests bring tasks of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from rayctsl.config import Config
from rayctsl.data.batches import Batches, split_indices
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.on_device import BatchSource, ResidentBatches, batches_on
from rayctsl.device import is_cpu
from rayctsl.models import build_model, find_head

ModelBuilder = Callable[[int], nn.Module]  # number of classes -> module


class Task(Protocol):
    """What the learners need of a task. The same seed must give every task the same backbone.

    With `on_device(device) -> Task` besides, it says how it computes on an accelerator; `HostTask` helps who does not.
    """

    name: str

    def build_module(self) -> nn.Module: ...
    def head_name(self, module: nn.Module) -> str | None: ...
    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor: ...


@runtime_checkable
class Planned(Protocol):
    """A task whose loss is a function of a plan in the device's memory, so that its gradient can be recorded."""

    def plan(self, index: int, *, held_out: bool = False) -> Tensor | None: ...
    def planned_loss(self, module: nn.Module, plan: Tensor, *, held_out: bool = False) -> Tensor: ...


class ImageTask:
    """Classify one dataset's images; batch number `index` is a pure function of the seed."""

    def __init__(
        self,
        dataset: Dataset,
        config: Config,
        *,
        needs_held_out: bool = False,
        model: ModelBuilder | None = None,
        device: torch.device | str = "cpu",
    ):
        self.name, self.dataset, self.config, self.device = dataset.name, dataset, config, device
        self.model = model
        # Convolutions want channels last, and images come that way for free; a model of one's own may not be ready
        # for it (`view` is not).
        self.channels_last = model is None
        indices, held_out = None, None
        if needs_held_out:
            count = len(dataset.train)
            indices, held_out = split_indices(count, config.data.held_out, config.seed, dataset.name)
        self.training = self._batches(dataset.name, indices)
        self.held_out = self._batches(f"{dataset.name}/held out", held_out) if needs_held_out else None

    def _batches(self, name: str, indices: np.ndarray | None) -> BatchSource:
        data = self.config.data
        batches = Batches(
            self.dataset.train,
            seed=self.config.seed,
            name=name,
            batch_size=data.batch_size,
            crop_padding=data.crop_padding,
            flip=data.flip == "always" or (data.flip and self.dataset.may_flip),
            indices=indices,
            channels_last=self.channels_last,
        )
        return batches_on(batches, self.device)

    def build_module(self) -> nn.Module:
        build = self.model or model_builder(self.config)
        return build(self.dataset.num_classes).to(self.device)

    def head_name(self, module: nn.Module) -> str | None:
        return find_head(module)

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        images, labels = self._source(held_out)(index)
        return functional.cross_entropy(module(images), labels)

    def plan(self, index: int, *, held_out: bool = False) -> Tensor | None:
        """What batch `index` is made of, if it is made on the device (and nobody has put another loss in its place)."""
        source = self._source(held_out)
        plain = type(self).loss is ImageTask.loss
        return source.plan(index) if plain and isinstance(source, ResidentBatches) else None

    def planned_loss(self, module: nn.Module, plan: Tensor, *, held_out: bool = False) -> Tensor:
        source = self._source(held_out)
        assert isinstance(source, ResidentBatches)
        images, labels = source.gather(plan)
        return functional.cross_entropy(module(images), labels)

    def _source(self, held_out: bool) -> BatchSource:
        source = self.held_out if held_out else self.training
        assert source is not None, "this method must say that it needs held-out batches"
        return source


class HostTask:
    """A task of one's own that knows the CPU alone, for a learner on an accelerator.

    The model is there; what the task gives it is carried to it, and what it answers is carried back, so that the task
    computes its loss where it always does. That makes the host wait: a task with `on_device(device) -> Task` need not.
    """

    def __init__(self, task: Task, device: torch.device | str):
        self.name, self.task, self.device = task.name, task, device

    def build_module(self) -> nn.Module:
        return self.task.build_module().to(self.device)

    def head_name(self, module: nn.Module) -> str | None:
        return self.task.head_name(module)

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        return self.task.loss(Carried(module, self.device), index, held_out=held_out)


class Carried(nn.Module):
    """A module on an accelerator that takes and returns tensors of the CPU."""

    def __init__(self, module: nn.Module, device: torch.device | str):
        super().__init__()
        self.module, self.device = module, device

    def forward(self, *inputs: object) -> object:
        there = [value.to(self.device) if isinstance(value, Tensor) else value for value in inputs]
        return tree_map_only(Tensor, Tensor.cpu, self.module(*there))


def own_task(task: Task, device: torch.device | str) -> Task:
    """A task of the user's own, made fit for a device."""
    if hasattr(task, "on_device"):
        return task.on_device(device)
    return task if is_cpu(device) else HostTask(task, device)


def model_builder(config: Config) -> ModelBuilder:
    """The config's model as a function of the number of classes; the backbone depends on the seed alone."""
    return lambda num_classes: build_model(config.model, num_classes, config.seed)


def build_image_task(
    name: str,
    config: Config,
    *,
    needs_held_out: bool = False,
    model: ModelBuilder | None = None,
    device: torch.device | str = "cpu",
) -> Task:
    """Open a dataset by name and make it a task."""
    dataset = open_dataset(name, config.data.root)
    return ImageTask(dataset, config, needs_held_out=needs_held_out, model=model, device=device)
