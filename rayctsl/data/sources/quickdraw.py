"""Quick, Draw!: one .npy of 28 x 28 bitmaps per class, [N, 784] uint8, of which the first 200 drawings are used.

Only the beginning of a file is needed, so that 54 MB are downloaded in place of 40 GB; whole files serve as well.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset

SIDE = 28
PER_SPLIT = 100
SPLIT_SEED = 0


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    class_names = [Path(file.name).stem for file in entry.files]
    listing = Listing()
    order = {}
    for label, name in enumerate(class_names):
        order[name] = np.random.default_rng([SPLIT_SEED, label]).permutation(2 * PER_SPLIT)
        for split, rows in (("train", order[name][:PER_SPLIT]), ("test", order[name][PER_SPLIT:])):
            for row in sorted(rows.tolist()):
                listing.add(split, f"{name}.npy[{row}]", label)
    return listing.dataset(class_names, _pictures(folder, class_names, listing))


def _pictures(folder: Path, class_names: list[str], listing: Listing) -> Iterator[Picture]:
    for name in class_names:
        for row, drawing in enumerate(first_drawings(folder / f"{name}.npy", 2 * PER_SPLIT)):
            yield listing.pick(f"{name}.npy[{row}]", drawing)


def first_drawings(path: Path, count: int) -> np.ndarray:
    """The first drawings [count, 28, 28, 1] of a file that may end after them."""
    with path.open("rb") as file:
        head = io.BytesIO(file.read(4096 + count * SIDE * SIDE))
    try:
        version = np.lib.format.read_magic(head)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran_order, dtype = read_header[version](head)
    except (ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file ({error})") from error
    if len(shape) != 2 or shape[1] != SIDE * SIDE or dtype != np.uint8 or fortran_order:
        raise ValueError(f"{path} must hold uint8 bitmaps [N, {SIDE * SIDE}], it has {dtype} {shape}")
    content = head.read(count * SIDE * SIDE)
    if shape[0] < count or len(content) < count * SIDE * SIDE:
        raise ValueError(f"{path} is cut off: it has fewer than {count} drawings; remove it")
    return np.frombuffer(content, np.uint8).reshape(count, SIDE, SIDE, 1)
