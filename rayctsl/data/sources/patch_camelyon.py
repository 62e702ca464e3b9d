"""PatchCamelyon: gzipped HDF5 files of 96 x 96 tissue patches, x and y apart, for training, validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import unpack_gzip

CLASS_NAMES = ("normal", "tumour")
SPLITS = {"train": "train", "valid": "train", "test": "test"}


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    for file in entry.files:
        unpack_gzip(folder / file.name, scratch / file.name.removesuffix(".gz"))
    listing = Listing()
    for word, split in SPLITS.items():
        with _opened(scratch, word, "y") as labels:
            for row, label in enumerate(labels["y"][:].reshape(-1).tolist()):
                listing.add(split, f"{word}[{row}]", int(label))
    return listing.dataset(CLASS_NAMES, _pictures(scratch, listing))


def _pictures(scratch: Path, listing: Listing) -> Iterator[Picture]:
    for word in SPLITS:
        with _opened(scratch, word, "x") as patches:
            for row, patch in enumerate(patches["x"]):
                yield listing.pick(f"{word}[{row}]", patch)


def _opened(scratch: Path, word: str, part: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise ValueError("PatchCamelyon's files are HDF5: pip install 'rayctsl[vtab]' brings their reader") from None
    file = scratch / f"camelyonpatch_level_2_split_{word}_{part}.h5"
    try:
        opened = h5py.File(file, "r")
    except OSError as error:
        raise ValueError(f"{file.name} is damaged or cut off; remove it and try again") from error
    if part not in opened:
        raise ValueError(f"{file.name} has no array {part!r}")
    return opened
