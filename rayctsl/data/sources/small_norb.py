"""small NORB: toys on a turntable, gzipped matrices of the publisher's own format; VTAB makes two tasks of it.

`norb_azimuth`: the angle of the table in 18 steps, `norb_elevation`: that of the camera in 9. Of the two cameras the
first is used. The toys of the test are not those of the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import unpack_gzip

TYPES = {0x1E3D4C55: "uint8", 0x1E3D4C54: "<i4"}  # by the magic number
TASKS = {  # column of the information matrix, its step, class names
    "norb_azimuth": (2, 2, tuple(f"{20 * number} degrees" for number in range(18))),
    "norb_elevation": (1, 1, tuple(f"{30 + 5 * number} degrees" for number in range(9))),
}
SPLITS = {"training": "train", "testing": "test"}


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    column, step, class_names = TASKS[entry.name]
    listing, images = Listing(), {}
    for word, split in SPLITS.items():
        parts = {}
        for kind in ("dat", "info"):
            file = next(file.name for file in entry.files if f"-{word}-{kind}." in file.name)
            unpack_gzip(folder / file, scratch / f"{word}-{kind}")
            parts[kind] = read_matrix(scratch / f"{word}-{kind}", file)
        images[word] = parts["dat"]
        for row, label in enumerate((parts["info"][:, column] // step).tolist()):
            listing.add(split, f"{word}[{row}]", label)
    return listing.dataset(class_names, _pictures(images, listing))


def read_matrix(path: Path, name: str) -> np.ndarray:
    """A matrix: magic number, number of dimensions, at least three sizes, then the entries."""
    header = np.fromfile(path, "<i4", 2)
    if len(header) < 2 or int(header[0]) not in TYPES or not 1 <= header[1] <= 8:
        raise ValueError(f"{name} is not a matrix in NORB's format")
    dimensions = int(header[1])
    sizes, start = np.fromfile(path, "<i4", dimensions, offset=8), 8 + 4 * max(3, dimensions)
    kind = np.dtype(TYPES[int(header[0])])
    if len(sizes) < dimensions or path.stat().st_size != start + int(np.prod(sizes, dtype=np.int64)) * kind.itemsize:
        raise ValueError(f"{name} is cut off; remove it and try again")
    return np.memmap(path, kind, "r", start, tuple(sizes.tolist()))


def _pictures(images: dict[str, np.ndarray], listing: Listing) -> Iterator[Picture]:
    for word, pairs in images.items():
        for row, (first, _) in enumerate(pairs):
            yield listing.pick(f"{word}[{row}]", np.array(first)[..., None])
