"""The program that a competent user writes first, to measure against: nothing of the engine is used here.

One process per task with torch.optim.SGD and a DataLoader worker for torchvision's per-image transforms; after every
inner step each parameter is all-reduced by gloo and shifted, one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, Dataset

from rayctsl.config import Config
from rayctsl.data.store import open_split
from rayctsl.models import build_model


class PerImage(Dataset):
    """Images in memory, transformed one by one: crop, flip, tensor, normalise."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        from rayctsl.torchvision_import import import_torchvision

        import_torchvision()
        from torchvision import transforms

        self.images, self.labels = images, labels
        size, channels = images.shape[1], images.shape[3]
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(size, padding=size // 8),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.5,) * channels, (0.25,) * channels),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        pixels = self.images[index]
        picture = Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[:, :, 0])
        return self.transform(picture), int(self.labels[index])


def endless(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader


class ObviousTask:
    """One process's share: calling it takes inner steps, each followed by the shift."""

    def __init__(self, rank: int, port: int, split: str, config: Config):
        torch.set_num_threads(1)
        world, inner = len(config.data.tasks), config.inner
        distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        data = open_split(Path(split))
        images = np.concatenate([np.array(chunk) for chunk in data.chunks()])
        loader = DataLoader(
            PerImage(images, data.labels),
            config.data.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        self.batches = endless(loader)
        self.model = build_model(config.model, data.info.num_classes, seed=0).train()
        self.theta = [value for name, value in self.model.named_parameters() if not name.startswith("head.")]
        self.phi = [value.detach().clone() for value in self.theta]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), inner.alpha, momentum=inner.momentum, weight_decay=inner.weight_decay
        )
        self.rate, self.losses = (config.method.beta or 0.0) / world, list[float]()

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            images, labels = next(self.batches)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            self.shift()

    @torch.no_grad()
    def shift(self) -> None:
        for theta, phi in zip(self.theta, self.phi, strict=True):
            delta = theta - phi
            distributed.all_reduce(delta)
            delta *= self.rate
            phi.add_(delta)
            theta.add_(delta)
