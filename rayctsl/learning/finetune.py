"""Meta-testing: ordinary training on a target dataset, from an initialization or from random weights.

A `Finetuner` is one seed's training and can be stopped, saved and continued at any step; `seeds` runs several of them,
`summarise` gives their mean accuracy with its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rayctsl.config import FinetuneConfig
from rayctsl.data.batches import Batches, Normalizer, batches_in_order, generator_for
from rayctsl.data.library import Dataset
from rayctsl.data.on_device import batches_on
from rayctsl.flat import FlatModule, build_optimizer, copy_state, load_backbone
from rayctsl.learning.memory import room_for
from rayctsl.learning.processor import keep_freed_memory, set_arithmetic
from rayctsl.models import find_head
from rayctsl.statistics import mean_and_interval

EVALUATION_BATCH = 256


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation. Example: CurvePoint(step=100, loss=1.72, accuracy=0.41)"""

    step: int
    loss: float  # mean training loss since the last point
    accuracy: float  # on the test split, 0..1


@dataclass
class FinetuneRun:
    """One seed's result."""

    seed: int
    accuracy: float
    curve: list[CurvePoint]


@dataclass
class FinetuneResult:
    """Several seeds on one dataset: accuracies in percent."""

    dataset: str
    initialization: str
    steps: int
    train_size: int
    accuracies: list[float]
    mean: float
    interval: float  # half width of the 95 % interval of the mean; NaN with one seed
    runs: list[FinetuneRun] = field(default_factory=list)
    recipe: FinetuneConfig = field(default_factory=FinetuneConfig)

    def to_json(self) -> dict[str, Any]:
        """As data; what is not a number is null, as JSON has no other word for it."""
        interval = self.interval if math.isfinite(self.interval) else None
        return {**asdict(self), "interval": interval, "recipe": self.recipe.model_dump(mode="json")}


class Diverged(RuntimeError):
    """The loss of a fine-tuning is no longer a number."""

    exit_code = 1


class Finetuner:
    """Training of one module on one dataset with one seed."""

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        config: FinetuneConfig,
        *,
        seed: int,
        phi: Mapping[str, Tensor] | None = None,
        train_indices: np.ndarray | None = None,
        test_indices: np.ndarray | None = None,
        device: str = "cpu",
    ):
        self.config, self.dataset, self.device = config, dataset, device
        self.module = module.to(device)
        head_name = find_head(module)
        if phi is not None:
            load_backbone(self.module, phi, head_name)
        keep_freed_memory()
        set_arithmetic()
        channels_last = getattr(module, "channels_last", False)
        self.flat = FlatModule(self.module, head_name, channels_last)
        self.optimizer = build_optimizer(config, self.flat.vector)
        self.step = 0
        self.curve: list[CurvePoint] = []
        chosen = np.arange(len(dataset.train)) if train_indices is None else train_indices
        self.train_indices = subsample(dataset, chosen, config.train_size, seed)
        # Validation on a held-out part of the training split reads training images, a test the test split.
        self.test_split = dataset.test if test_indices is None else dataset.train
        self.test_indices = test_indices
        batches = Batches(
            dataset.train,
            seed=seed,
            name=f"finetune/{dataset.name}",
            batch_size=config.batch_size,
            crop_padding=config.crop_padding,
            flip=config.flip and dataset.may_flip,
            indices=self.train_indices,
            channels_last=channels_last,
        )
        self.batches = batches_on(batches, device)
        self.normalize = Normalizer(dataset.train.info, device, channels_last)
        self._losses: list[Tensor] = []  # since the last point; nobody waits for them before

    def run(self, steps: int | None = None, on_point: Callable[[CurvePoint], None] | None = None) -> None:
        """Train on to step `steps` (default: the end), evaluating on the way."""
        end = self.config.steps if steps is None else min(steps, self.config.steps)
        num_test = len(self.test_split) if self.test_indices is None else len(self.test_indices)
        every = self.config.evaluation_period(num_test)
        while self.step < end:
            with self._room():
                self._losses.append(self._train_step())
            self.step += 1
            if self.step % every == 0 or self.step == self.config.steps:
                point = CurvePoint(self.step, float(np.mean(self._read_losses())), self.evaluate())
                self._losses.clear()
                self.curve.append(point)
                if on_point:
                    on_point(point)

    def _room(self) -> AbstractContextManager[None]:
        remedy = "lower the recipe's batch_size (--batch-size), or use a GPU with more memory"
        return room_for(f"fine-tuning on {self.dataset.name!r}", self.config.batch_size, self.device, remedy=remedy)

    def learning_rate(self) -> float:
        passed = sum(self.step >= share * self.config.steps for share in self.config.decay_at)
        return self.config.alpha * self.config.decay**passed

    def _read_losses(self) -> list[float]:
        return torch.stack(self._losses).cpu().tolist() if self._losses else []

    def _train_step(self) -> Tensor:
        self.module.train()
        images, labels = self.batches(self.step)
        self.flat.grad.zero_()
        head_only = self.config.freeze_backbone or self.step < self.config.head_steps
        self.flat.freeze_backbone(head_only)
        loss = functional.cross_entropy(self.module(images), labels)
        loss.backward()
        part = slice(self.flat.size if head_only else 0, None)
        theta, grad = self.flat.vector[part], self.flat.grad[part]
        theta.add_(self.optimizer.direction(theta, grad, part), alpha=-self.learning_rate())
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> float:
        """Accuracy on the test images."""
        self.module.eval()
        correct, total = torch.zeros((), dtype=torch.int64, device=self.device), 0
        for images, labels in batches_in_order(self.test_split, self.normalize, EVALUATION_BATCH, self.test_indices):
            correct += (self.module(images).argmax(1) == labels).sum()
            total += len(labels)
        return int(correct) / total

    def state(self) -> dict[str, Tensor]:
        """Copies of everything needed to continue, besides what the arguments say."""
        state = {"vector": self.flat.vector, **{f"optimizer.{k}": v for k, v in self.optimizer.state.items()}}
        state.update({f"buffer.{name}": value for name, value in self.flat.buffers().items()})
        state = {name: value.detach().cpu().clone() for name, value in state.items()}
        curve = [[point.step, point.loss, point.accuracy] for point in self.curve]
        state["curve"] = torch.tensor(curve, dtype=torch.float64).reshape(-1, 3)
        state["losses"] = torch.tensor(self._read_losses(), dtype=torch.float64)
        state["step"] = torch.tensor([self.step])
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        live = {"vector": self.flat.vector, **{f"optimizer.{k}": v for k, v in self.optimizer.state.items()}}
        live.update({f"buffer.{name}": value for name, value in self.flat.buffers().items()})
        own = {"curve", "losses", "step"}
        copy_state(live, {name: value for name, value in state.items() if name not in own})
        self.curve = [CurvePoint(int(s), loss, accuracy) for s, loss, accuracy in state["curve"].tolist()]
        self._losses = list(state["losses"].to(self.flat.vector))
        self.step = int(state["step"].item())


def subsample(dataset: Dataset, indices: np.ndarray, size: int | None, seed: int) -> np.ndarray:
    """`size` of the training images, class by class in turn, so that small samples are balanced."""
    if size is None or size >= len(indices):
        return indices
    order = generator_for(seed, dataset.name, "subsample").permutation(indices)
    labels = dataset.train.labels[order]
    rank = np.zeros(len(order), int)  # how many earlier images share an image's class
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    return np.sort(order[np.argsort(rank, kind="stable")[:size]])


def check_point(seed: int, point: CurvePoint) -> None:
    """Refuse to go on with a training that diverged as if its accuracy meant anything."""
    if not math.isfinite(point.loss):
        when = f"the fine-tuning of seed {seed} diverged before step {point.step}"
        raise Diverged(f"{when}: its loss is no longer a number; choose a smaller alpha")


def summarise(
    dataset: Dataset, runs: list[FinetuneRun], config: FinetuneConfig, initialization: str, train_size: int
) -> FinetuneResult:
    """Mean and interval over the seeds' final accuracies."""
    accuracies = [100 * run.accuracy for run in runs]
    mean, interval = mean_and_interval(accuracies)
    return FinetuneResult(
        dataset.name, initialization, config.steps, train_size, accuracies, mean, interval, runs, config
    )
