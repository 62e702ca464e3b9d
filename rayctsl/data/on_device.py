"""The batches of `batches.py` for an accelerator, bit for bit, without a wait in the step.

A split that fits lives on the device as uint8: indices, crops and flips stay numpy's and travel for many steps at once;
gathering, cropping and flipping are tensor operations. Of a split that does not fit, a thread makes the next batches in
pinned memory while the device computes.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from rayctsl.data.batches import Batches, Normalizer
from rayctsl.data.store import Split
from rayctsl.device import free_bytes, is_cpu, send

PLANNED_STEPS = 64  # whose draws travel together
AHEAD = 2  # batches made before they are asked for
UPLOADED_IMAGES = 4096  # at a time
SHARE = 0.5  # of the free memory for splits; models, activations and other processes have the rest


class BatchSource(Protocol):
    """Images and labels of a step, on the device that computes it."""

    def __call__(self, step: int) -> tuple[Tensor, Tensor]: ...


def batches_on(batches: Batches, device: torch.device | str) -> BatchSource:
    """The same batches on a device."""
    if is_cpu(device):
        return batches
    resident = resident_split(batches.split, device)
    return PrefetchedBatches(batches, device) if resident is None else ResidentBatches(batches, resident)


def fits(num_bytes: int, taken: int, free: int) -> bool:
    """Whether a split may live on a device where `taken` bytes of splits do already and `free` bytes are free."""
    return num_bytes + taken <= SHARE * (free + taken)


class ResidentSplit:
    """A split's pixels and labels in the device's memory."""

    def __init__(self, split: Split, device: torch.device | str):
        self.images = torch.empty((len(split), *split.info.shape), dtype=torch.uint8, device=device)
        for start in range(0, len(split), UPLOADED_IMAGES):
            chosen = np.arange(start, min(start + UPLOADED_IMAGES, len(split)))
            self.images[start : start + len(chosen)].copy_(torch.from_numpy(split.images(chosen)))
        self.labels = torch.from_numpy(split.labels.astype(np.int64)).to(device)


_residents: WeakKeyDictionary[Split, ResidentSplit] = WeakKeyDictionary()  # of this process, as long as a split is open


def resident_split(split: Split, device: torch.device | str) -> ResidentSplit | None:
    """The split on the device, brought there by the first who asks; None when it does not fit."""
    found = _residents.get(split)
    if found is not None and found.images.device.type == torch.device(device).type:
        return found
    taken = sum(resident.images.numel() for resident in _residents.values())
    if not fits(len(split) * int(np.prod(split.info.shape)), taken, free_bytes(device)):
        return None
    _residents[split] = ResidentSplit(split, device)
    return _residents[split]


class ResidentBatches:
    """Batches gathered on the device. `plan` says what a batch is made of, `gather` makes it."""

    def __init__(self, batches: Batches, resident: ResidentSplit):
        self.batches, self.resident, device = batches, resident, resident.images.device
        self.normalize = Normalizer(batches.split.info, device, batches.channels_last)
        height, width, _ = batches.split.info.shape
        self._rows, self._columns = (torch.arange(size, device=device) for size in (height, width))
        self._first, self._plans = -1, torch.empty(0)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        return self.gather(self.plan(step))

    def plan(self, step: int) -> Tensor:
        """What batch `step` is made of, [4, B]: image, down, right, mirrored."""
        if not self._first <= step < self._first + len(self._plans):
            self._first = step
            table = [self._draw(number) for number in range(step, step + PLANNED_STEPS)]
            self._plans = send(np.stack(table), self.resident.images.device)
        return self._plans[step - self._first]

    def _draw(self, step: int) -> np.ndarray:
        down, right, mirrored = self.batches.draw(step)
        return np.stack([self.batches.choose(step), down, right, mirrored])

    def gather(self, plan: Tensor) -> tuple[Tensor, Tensor]:
        """The batch of a plan, normalised; a pure function of the plan's memory."""
        return self.normalize(self.pixels(plan)), self.resident.labels[plan[0]]

    def pixels(self, plan: Tensor) -> Tensor:
        """The batch of a plan as uint8 [B, H, W, C]: every pixel is fetched from where its crop has it, or is 0."""
        image, down, right, mirrored = (values[:, None] for values in plan)
        height, width = len(self._rows), len(self._columns)
        rows = self._rows + down - self.batches.padding
        columns = torch.where(mirrored == 1, width - 1 - self._columns, self._columns) + right - self.batches.padding
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
        at = rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None]
        return self.resident.images[image[:, :, None], *at] * inside[..., None]


class PrefetchedBatches:
    """Batches of a split that does not fit, made ahead by a thread."""

    def __init__(self, batches: Batches, device: torch.device | str):
        self.batches, self.device = batches, device
        self.normalize = Normalizer(batches.split.info, device, batches.channels_last)
        self._thread = ThreadPoolExecutor(1, "batches")
        self._made: dict[int, Future[tuple[Tensor, Tensor]]] = {}

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        wanted = range(step, step + AHEAD + 1)
        self._made = {number: self._made.get(number) or self._thread.submit(self._make, number) for number in wanted}
        images, labels = self._made.pop(step).result()
        return self.normalize(images.to(self.device, non_blocking=True)), labels.to(self.device, non_blocking=True)

    def _make(self, step: int) -> tuple[Tensor, Tensor]:
        images, labels = self.batches.pixels(step)
        return torch.from_numpy(images).pin_memory(), labels.pin_memory()
