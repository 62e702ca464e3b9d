"""Images per second on one core: random augmented batches from the store against torchvision's per-image pipeline."""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rayctsl.bench.rounds import Figures

if TYPE_CHECKING:
    from torch import Tensor

    from rayctsl.data.batches import Batches

NextBatch = Callable[[int], "tuple[Tensor, Tensor]"]


def measure(arguments: argparse.Namespace) -> Figures:
    """Both pipelines in turn, several rounds; the figure is the median of the rounds' ratios."""
    import torch

    torch.set_num_threads(1)
    from rayctsl.data.batches import Batches
    from rayctsl.data.store import SplitInfo, open_split, write_split

    size, batch_size = arguments.size, arguments.batch_size
    images = np.random.default_rng(0).integers(0, 256, (5000, size, size, 3), dtype=np.uint8)
    labels = np.arange(5000) % 10
    with tempfile.TemporaryDirectory() as folder:
        info = SplitInfo("bench", "train", (size, size, 3), tuple("0123456789"))
        write_split(Path(folder) / "train.arrow", images, labels, info)
        batches = Batches(open_split(Path(folder) / "train.arrow"), seed=0, name="bench", batch_size=batch_size)
        per_image = _per_image_pipeline(images, labels, batch_size)
        memory = {str(count): _mapped_megabytes(Path(folder) / "train.arrow", count) for count in (1, 4)}
        stored, obvious = [], []
        for number in range(arguments.rounds):
            stored.append(_rate(partial(_stored_batch, batches, number * 1000), 60, batch_size))
            obvious.append(_rate(per_image, 6, batch_size))
    ratios = np.array(stored) / np.array(obvious)
    return {
        "images_per_s": float(np.median(stored)),
        "obvious_images_per_s": float(np.median(obvious)),
        "ratio": float(np.median(ratios)),
        "ratio_spread": [float(ratios.min()), float(ratios.max())],
        "rounds": arguments.rounds,
        "mapped_megabytes_by_processes": memory,
    }


def _mapped_megabytes(path: Path, count: int) -> float:
    """Memory that `count` processes together use for the mapped dataset: shared pages are counted once."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(count), context.SimpleQueue()
    processes = [context.Process(target=_map_and_weigh, args=(str(path), ready, answers)) for _ in range(count)]
    for process in processes:
        process.start()
    total = sum(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return total / 1024


def _map_and_weigh(path: str, ready: Barrier, answers: SimpleQueue[int]) -> None:
    """Read every image through the map; answer with this process's proportional share of its pages, in kilobytes."""
    from rayctsl.data.store import open_split

    split = open_split(Path(path))
    for chunk in split.chunks():
        chunk.max()
    ready.wait()
    share = share_of(path, Path("/proc/self/smaps").read_text())
    ready.wait()
    answers.put(share)


def share_of(path: str, maps: str) -> int:
    """A process's proportional share of a mapped file's pages, in kilobytes; `maps` is its /proc/self/smaps."""
    share, inside = 0, False
    for line in maps.splitlines():
        if "-" in line.split(" ")[0]:
            inside = line.endswith(path)
        elif inside and line.startswith("Pss:"):
            share += int(line.split()[1])
    return share


def _stored_batch(batches: Batches, base: int, step: int) -> tuple[Tensor, Tensor]:
    return batches(base + step)


def _rate(next_batch: NextBatch, count: int, batch_size: int) -> float:
    next_batch(0)
    started = time.process_time()
    for step in range(1, count + 1):
        next_batch(step)
    return count * batch_size / (time.process_time() - started)


def _per_image_pipeline(images: np.ndarray, labels: np.ndarray, batch_size: int) -> NextBatch:
    """What a competent user writes first: torchvision transforms in a Dataset, a DataLoader in the same process."""
    from torch.utils.data import DataLoader

    from rayctsl.bench.obvious import PerImage, endless

    batches = endless(DataLoader(PerImage(images, labels), batch_size, shuffle=True))
    return lambda step: next(batches)
