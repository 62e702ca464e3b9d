"""Archives with one folder a class and no split: Caltech-101, SUN397, EuroSAT and RESISC45."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset, shuffled_rows
from rayctsl.data.sources.archives import members, unpack

SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Layout:
    """Where the class stands in a file's name, and how the images are split.

    Example: SUN397/a/apartment_building/outdoor/sun_x.jpg with skip 2 is of class apartment_building/outdoor.
    """

    skip: int  # folders before the class's
    inner: str = ""  # the archive inside the archive that has the images
    train_per_class: int = 0  # 0: a share of all images is the test
    test_percent: int = 20


LAYOUTS = {
    "caltech101": Layout(1, "caltech-101/101_ObjectCategories.tar.gz", train_per_class=30),
    "sun397": Layout(2),
    "eurosat": Layout(1),
    "resisc45": Layout(1),
}


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    layout, archive = LAYOUTS[entry.origin], folder / entry.files[0].name
    if layout.inner:
        unpack(archive, scratch)
        archive = scratch / layout.inner
    classes: dict[str, list[str]] = defaultdict(list)
    for member in members(archive):
        if member.name.lower().endswith(SUFFIXES):
            classes["/".join(member.name.split("/")[layout.skip : -1])].append(member.name)
    images = [(name, label) for label, (_, names) in enumerate(sorted(classes.items())) for name in sorted(names)]
    test, listing = _test_rows(layout, [label for _, label in images]), Listing()
    for row, (name, label) in enumerate(images):
        listing.add("test" if row in test else "train", name, label)
    return listing.dataset(sorted(classes), _pictures(archive, listing))


def _test_rows(layout: Layout, labels: list[int]) -> set[int]:
    """The rows that are for testing, by a fixed seed: the publishers have no split."""
    order = shuffled_rows(len(labels))
    if not layout.train_per_class:
        return set(order[: len(labels) * layout.test_percent // 100])
    seen: dict[int, int] = defaultdict(int)
    test = set()
    for row in order:
        seen[labels[row]] += 1
        if seen[labels[row]] > layout.train_per_class:
            test.add(row)
    return test


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
