"""Image files through a fine-tuned model: found, decoded as in training, classified a batch at a time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rayctsl.data.images import UNREADABLE, decode, why_unreadable
from rayctsl.data.importing import IMAGE_SUFFIXES
from rayctsl.jobs.model import Finetuned

BATCH = 64


@dataclass(frozen=True)
class Prediction:
    """One image's answer. Example: Prediction("a.jpg", (("cat", 0.9), ("dog", 0.1)))"""

    path: str
    classes: tuple[tuple[str, float], ...]  # likeliest first; empty when the image cannot be read
    error: str | None = None


def find_images(sources: Iterable[str]) -> Iterator[str]:
    """The files named, and all images below the folders named; ValueError for a folder without any."""
    for source in sources:
        if os.path.isdir(source):
            found = sorted(path for path in Path(source).rglob("*") if _is_image(path))
            if not found:
                raise ValueError(f"the folder {source} has no images")
            yield from (str(path) for path in found)
        else:
            yield source


def classify(model: Finetuned, paths: Iterable[str]) -> Iterator[Prediction]:
    """Every image's classes in order; one that cannot be read says so and does not stop the others."""
    stream = iter(paths)
    while batch := list(islice(stream, BATCH)):
        decoded = [_read(path, model.facts.shape) for path in batch]
        images = [image for image in decoded if not isinstance(image, str)]
        scores = iter(model.probabilities(np.stack(images)).tolist() if images else [])
        for path, image in zip(batch, decoded, strict=True):
            if isinstance(image, str):
                yield Prediction(path, (), image)
            else:
                yield Prediction(path, _ranked(model, next(scores)))


def _ranked(model: Finetuned, scores: list[float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(zip(model.facts.class_names, scores, strict=True), key=lambda pair: -pair[1]))


def _read(path: str, shape: tuple[int, int, int]) -> np.ndarray | str:
    """The image in the model's shape, or why it cannot be had."""
    height, width, channels = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata in old photographs
            return decode(Path(path), (height, width), channels)
    except FileNotFoundError:
        return "there is no such file"
    except UNREADABLE as error:
        return why_unreadable(error)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
