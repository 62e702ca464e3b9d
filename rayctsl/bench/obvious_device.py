"""The obvious program on one accelerator: every task in turn with torch.optim.SGD, images transformed one by one."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader

from rayctsl.bench.obvious import PerImage, endless
from rayctsl.config import Config
from rayctsl.data.library import open_dataset
from rayctsl.models import build_model


class ObviousOnDevice:
    """Nothing of the engine: a loader, a model and an optimizer per task, and a shift tensor by tensor."""

    def __init__(self, config: Config, device: str):
        self.device, self.rate = device, (config.method.beta or 0.0) / len(config.data.tasks)
        self.tasks = [self._task(name, config) for name in config.data.tasks]
        self.phi = [value.detach().clone() for value in self.tasks[0][1].parameters()]
        self.losses: list[float] = []

    def _task(self, name: str, config: Config) -> tuple:
        split = open_dataset(name, config.data.root).train
        images = split.images(torch.arange(len(split)).numpy())
        workers = min(2, len(os.sched_getaffinity(0)) - 1)
        loader = DataLoader(
            PerImage(images, split.labels),
            config.data.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        model = build_model(config.model, split.info.num_classes, 0).to(self.device).train()
        inner = config.inner
        optimizer = torch.optim.SGD(
            model.parameters(), inner.alpha, momentum=inner.momentum, weight_decay=inner.weight_decay
        )
        return endless(loader), model, optimizer

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            for batches, model, optimizer in self.tasks:
                images, labels = next(batches)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images.to(self.device)), labels.to(self.device))
                loss.backward()
                optimizer.step()
                self.losses.append(loss.item())
            self._shift()

    @torch.no_grad()
    def _shift(self) -> None:
        backbones = [
            [value for name, value in model.named_parameters() if not name.startswith("head.")]
            for _, model, _ in self.tasks
        ]
        for thetas, phi in zip(zip(*backbones, strict=True), self.phi, strict=False):
            delta = sum(theta - phi for theta in thetas) * self.rate
            phi.add_(delta)
            for theta in thetas:
                theta.add_(delta)
