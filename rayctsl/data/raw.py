"""A dataset as its publisher wrote it: what every source hands to the preparation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

SPLIT_SEED = 0


class Picture(NamedTuple):
    """One image of a source. Example: Picture("train", 0, "n01443537_0.JPEG", jpeg_bytes)"""

    split: str
    row: int
    name: str
    content: bytes | Path | np.ndarray  # an encoded image, the file that holds one, or uint8 [H, W] or [H, W, C]


@dataclass(frozen=True)
class RawDataset:
    """Labels and names of both splits in row order; the pictures come in any order."""

    class_names: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    names: Mapping[str, Sequence[str]]
    pictures: Iterable[Picture]


def shuffled_rows(count: int) -> list[int]:
    """All rows in an order that is the same everywhere: the split of datasets whose publishers have none."""
    order: list[int] = np.random.default_rng(SPLIT_SEED).permutation(count).tolist()
    return order


class Listing:
    """The images that a publisher's lists name, each with its split and label, in the order of the lists.

    Example: listing.add("train", "Images/n02085620/a.jpg", 0); listing.pick("Images/n02085620/a.jpg", jpeg_bytes)
    """

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {"train": [], "test": []}
        self.labels: dict[str, list[int]] = {"train": [], "test": []}
        self._places: dict[str, tuple[str, int]] = {}

    def add(self, split: str, name: str, label: int) -> None:
        if name in self._places:
            raise ValueError(f"'{name}' is listed twice")
        self._places[name] = (split, len(self.names[split]))
        self.names[split].append(name)
        self.labels[split].append(label)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def pick(self, name: str, content: bytes | Path | np.ndarray) -> Picture:
        split, row = self._places[name]
        return Picture(split, row, name, content)

    def dataset(self, class_names: Sequence[str], pictures: Iterator[Picture]) -> RawDataset:
        labels = {split: np.array(values, np.int64) for split, values in self.labels.items()}
        return RawDataset(tuple(class_names), labels, self.names, pictures)
