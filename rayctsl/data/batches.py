"""Seeded, augmented batches of a split.

The batch of (seed, name, step) is a pure function, so nothing of a loader has to be saved but the step. Pixels stay
uint8 until they are cropped and flipped, a whole batch at a time, and are converted once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch import Tensor

from rayctsl.data.store import Split, SplitInfo
from rayctsl.device import send


def generator_for(seed: int, name: str, purpose: str, number: int = 0) -> np.random.Generator:
    """A random generator that depends on nothing but its arguments."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), zlib.crc32(purpose.encode()), number])


def split_indices(count: int, held_out: float, seed: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out indices of a seeded split of `count` images; neither is empty."""
    if count < 2:
        raise ValueError(f"dataset {name!r} has {count} training image, too few to set some apart")
    order = generator_for(seed, name, "held out").permutation(count)
    cut = min(max(round(count * held_out), 1), count - 1)
    return np.sort(order[cut:]), np.sort(order[:cut])


class Normalizer:
    """uint8 [B, H, W, C] to float32 [B, C, H, W], centred and scaled by the training split's statistics."""

    def __init__(self, info: SplitInfo, device: torch.device | str = "cpu", channels_last: bool = False):
        self.device, self.channels_last = device, channels_last
        self.scale = torch.tensor([1 / s for s in info.std], dtype=torch.float32, device=device)
        self.offset = torch.tensor([-m / s for m, s in zip(info.mean, info.std, strict=True)], device=device)

    def __call__(self, images: np.ndarray | Tensor) -> Tensor:
        # uint8 crosses to the device, a quarter of the bytes of float32.
        pixels = images if isinstance(images, Tensor) else send(images, self.device)
        values = torch.addcmul(self.offset, pixels, self.scale).permute(0, 3, 1, 2)
        return values if self.channels_last else values.contiguous()


class Draw(NamedTuple):
    """What chance decides of one batch: where each image is cropped, and which are mirrored."""

    down: np.ndarray  # [B], 0 .. 2 * padding
    right: np.ndarray
    mirrored: np.ndarray  # [B] bool


class Batches:
    """The endless training batches of one split, by step: an epoch is a seeded permutation, cut into batches.

    On a CPU; `on_device.py` gives the same batches to an accelerator.
    """

    def __init__(
        self,
        split: Split,
        *,
        seed: int,
        name: str,
        batch_size: int,
        crop_padding: int | None = None,
        flip: bool = True,
        indices: np.ndarray | None = None,
        channels_last: bool = False,
    ):
        self.split, self.seed, self.name, self.flip = split, seed, name, flip
        self.indices = np.arange(len(split)) if indices is None else indices
        self.batch_size = min(batch_size, len(self.indices))
        height, width, channels = split.info.shape
        self.padding = height // 8 if crop_padding is None else crop_padding
        self.channels_last = channels_last
        self.normalize = Normalizer(split.info, channels_last=channels_last)
        self.labels = torch.from_numpy(split.labels.astype(np.int64))
        padded = (self.batch_size, height + 2 * self.padding, width + 2 * self.padding, channels)
        self._padded = np.zeros(padded, np.uint8)
        self._epoch = -1
        self._order = self.indices

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Images float32 [B, C, H, W] and labels [B] of one step."""
        images, labels = self.pixels(step)
        return self.normalize(images), labels

    def pixels(self, step: int) -> tuple[np.ndarray, Tensor]:
        """The step's augmented images as uint8 [B, H, W, C], and its labels."""
        chosen = self.choose(step)
        return self.augment(self.split.images(chosen), step), self.labels[torch.from_numpy(chosen)]

    def choose(self, step: int) -> np.ndarray:
        """The dataset indices of a step's batch; a batch may span the end of an epoch."""
        count, start = len(self.indices), step * self.batch_size
        epoch, position = divmod(start, count)
        chosen = self._shuffled(epoch)[position : position + self.batch_size]
        missing = self.batch_size - len(chosen)
        return np.concatenate([chosen, self._shuffled(epoch + 1)[:missing]]) if missing else chosen

    def draw(self, step: int) -> Draw:
        """Crops and flips of a step's batch."""
        random, count = generator_for(self.seed, self.name, "augment", step), self.batch_size
        down = right = np.zeros(count, np.int64)
        if self.padding:
            down, right = random.integers(0, 2 * self.padding + 1, (2, count))
        return Draw(down, right, random.random(count) < 0.5 if self.flip else np.zeros(count, bool))

    def augment(self, images: np.ndarray, step: int) -> np.ndarray:
        """Random crops of the zero-padded images, and random flips, a whole batch at a time."""
        draw = self.draw(step)
        count, height, width, channels = images.shape
        if self.padding:
            reach, canvas = 2 * self.padding + 1, self._padded
            canvas[:, self.padding : self.padding + height, self.padding : self.padding + width] = images
            rows, columns = canvas.strides[1:3]
            # Every crop of every image as one view; picking B of them is a single gather.
            strides = (*canvas.strides[:3], rows, columns, canvas.strides[3])
            crops = as_strided(canvas, (count, reach, reach, height, width, channels), strides, writeable=False)
            images = crops[np.arange(count), draw.down, draw.right]
        mirrored = np.flatnonzero(draw.mirrored)
        if len(mirrored):
            images[mirrored] = images[mirrored, :, ::-1]
        return images

    def _shuffled(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            order = generator_for(self.seed, self.name, "epoch", epoch).permutation(len(self.indices))
            self._epoch, self._order = epoch, self.indices[order]
        return self._order


def batches_in_order(
    split: Split, normalize: Normalizer, batch_size: int, indices: np.ndarray | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every image once, without augmentation, for evaluation."""
    indices = np.arange(len(split)) if indices is None else indices
    for start in range(0, len(indices), batch_size):
        chosen = indices[start : start + batch_size]
        yield normalize(split.images(chosen)), send(split.labels[chosen].astype(np.int64), normalize.device)
