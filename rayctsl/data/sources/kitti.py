"""KITTI's object benchmark: street pictures and lists of what is in them; VTAB asks how near the next vehicle is.

Its labels: up to 8 m, up to 20 m, farther, none at all.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset, shuffled_rows
from rayctsl.data.sources.archives import members
from rayctsl.data.sources.lists import columns

VEHICLES = ("Car", "Van", "Truck")
EDGES = (8.0, 20.0, 999.0)
CLASS_NAMES = ("up to 8 m", "up to 20 m", "farther", "none")
DEPTH = 13  # column of a line: the distance along the camera's axis in metres
TEST_PERCENT = 10


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    images, notes = (folder / file.name for file in entry.files)
    labels = {}
    for member in members(notes):
        if member.name.startswith("training/label_2/") and member.name.endswith(".txt"):
            labels[Path(member.name).stem] = nearest_vehicle(member.read().decode("utf-8", "replace"), member.name)
    listing, order = Listing(), sorted(labels)
    test = set(shuffled_rows(len(order))[: len(order) * TEST_PERCENT // 100])
    for row, stem in enumerate(order):
        listing.add("test" if row in test else "train", f"training/image_2/{stem}.png", labels[stem])
    return listing.dataset(CLASS_NAMES, _pictures(images, listing))


def nearest_vehicle(text: str, name: str) -> int:
    """The label of a picture from its list of objects."""
    depths = [float(parts[DEPTH]) for parts in columns(text, 15, name) if parts[0] in VEHICLES]
    return bisect.bisect_left(EDGES, min(depths, default=1000.0))


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
