"""Publishers' files to Arrow: download, read, decode in parallel, write both splits, publish the folder whole.

`write_dataset` is the last half of it and serves imported images too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rayctsl.data.catalog import Reference, find_entry
from rayctsl.data.entries import Entry
from rayctsl.data.images import decode_into
from rayctsl.data.local_root import always, never
from rayctsl.data.raw import Picture, RawDataset
from rayctsl.data.roots import data_root, open_root
from rayctsl.data.store import SplitInfo, open_split, write_split

IMPORTED = "imported from "  # how the source of the user's own data begins


def prepare(
    reference: Reference,
    root: str | None = None,
    downloads: Path | None = None,
    workers: int | None = None,
    replace: bool = False,
) -> Path:
    """Convert a dataset of the catalog once; returns the folder with both splits. Safe to run anywhere, any number."""
    entry = find_entry(reference.name)
    place = open_root(data_root(root))
    found = place.fetch(reference.folder)
    if found is not None and not replace:
        source = open_split(found / "train.arrow").info.source
        if source.startswith(IMPORTED):
            raise ValueError(f"'{reference}' was {source}; --replace puts the publisher's data in its place")
        return found

    def make(folder: Path) -> None:
        prepare_entry(entry, reference.size or entry.size, folder, downloads or place.downloads, workers)

    return place.publish(reference.folder, make, never if replace else always)


def prepare_entry(entry: Entry, size: int, folder: Path, downloads: Path, workers: int | None = None) -> None:
    """Fill `folder` with both splits of a dataset at one size."""
    from rayctsl.data.sources import read_source

    scratch = folder / "scratch"
    scratch.mkdir()
    raw = read_source(entry, downloads / entry.origin, scratch)
    for split, expected in (("train", entry.num_train), ("test", entry.num_test)):
        count = len(raw.labels[split])
        if expected is not None and count != expected:
            raise ValueError(f"{entry.name}: the files list {count:,} {split} images, not {expected:,}")
    if len(raw.class_names) != entry.num_classes:
        raise ValueError(f"{entry.name}: the files list {len(raw.class_names)} classes, not {entry.num_classes}")
    shape = (size, size, entry.channels)
    write_dataset(folder, raw, entry.name, shape, source=entry.home, licence=entry.licence, workers=workers)
    shutil.rmtree(scratch)


def write_dataset(
    folder: Path,
    raw: RawDataset,
    name: str,
    shape: tuple[int, int, int],
    source: str,
    licence: str,
    workers: int | None = None,
    flip: bool | None = None,
) -> None:
    """Decode every picture and write train.arrow and test.arrow."""
    arrays, files = {}, []
    for split, labels in raw.labels.items():
        files.append(folder / f"{split}.pixels")
        arrays[split] = _disk_array(files[-1], (len(labels), *shape))
    decode_into(arrays, _each_once(raw, name), name, workers)
    for split, labels in raw.labels.items():
        info = SplitInfo(name, split, shape, raw.class_names, source=source, licence=licence, flip=flip)
        write_split(folder / f"{split}.arrow", arrays[split], labels, info, raw.names[split])
    arrays.clear()
    for file in files:
        file.unlink()


def _disk_array(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """Images that may be more than memory holds, with disk space reserved: a full disk is an error, not a crash."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)))
    return np.memmap(path, np.uint8, "r+", shape=shape)


def _each_once(raw: RawDataset, name: str) -> Iterable[Picture]:
    """Pass the pictures on; refuse when a listed one never comes."""
    missing = {split: np.ones(len(labels), bool) for split, labels in raw.labels.items()}
    for picture in raw.pictures:
        missing[picture.split][picture.row] = False
        yield picture
    lost = [raw.names[split][row] for split, rows in missing.items() for row in np.flatnonzero(rows).tolist()]
    if lost:
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        raise ValueError(f"{name}: listed but not there: {', '.join(lost[:5])}{more}")
