"""dSprites: one .npz of 737,280 pictures of a white shape, with the factors that made each; VTAB makes two tasks of it.

`dsprites_location`: where the shape is from left to right, `dsprites_orientation`: how it is turned, 16 classes each.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset, shuffled_rows
from rayctsl.data.sources.archives import refusing_damage

NUM_CLASSES = 16
TEST_PERCENT = 10
FACTORS = {"dsprites_location": (4, 32), "dsprites_orientation": (3, 40)}  # column of latents_classes, its values


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    file = folder / entry.files[0].name
    column, values = FACTORS[entry.name]
    with refusing_damage(file), file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        labels = archive["latents_classes"][:, column] * NUM_CLASSES // values
    test, listing = set(shuffled_rows(len(labels))[: len(labels) * TEST_PERCENT // 100]), Listing()
    for row, label in enumerate(labels.tolist()):
        listing.add("test" if row in test else "train", f"imgs[{row}]", label)
    names = [f"{number + 1} of {NUM_CLASSES}" for number in range(NUM_CLASSES)]
    return listing.dataset(names, _pictures(file, listing, len(labels)))


def _pictures(file: Path, listing: Listing, count: int) -> Iterator[Picture]:
    """The pictures one by one: all of them at once are 3 GB."""
    with refusing_damage(file), zipfile.ZipFile(file) as archive, archive.open("imgs.npy") as stream:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("imgs.npy has an unknown version")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
        if len(shape) != 3 or shape[0] != count or dtype != np.uint8 or fortran_order:
            raise ValueError(f"imgs.npy has {dtype} {shape}, not {count:,} pictures")
        for row in range(count):
            content = stream.read(shape[1] * shape[2])
            picture = np.frombuffer(content, np.uint8).reshape(shape[1], shape[2], 1)
            yield listing.pick(f"imgs[{row}]", picture * 255)
