"""Caltech-UCSD Birds-200-2011: one .tgz of images and of lists that give each its name, class and split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import members
from rayctsl.data.sources.lists import columns, read_texts

FOLDER = "CUB_200_2011"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    archive = folder / entry.files[0].name
    texts = read_texts(archive, [f"{FOLDER}/{name}" for name in LISTS])
    images, labels, splits, classes = (dict(columns(texts[f"{FOLDER}/{name}"], 2, name)) for name in LISTS)
    class_numbers = {number: row for row, number in enumerate(classes)}
    listing = Listing()
    for number, name in images.items():
        try:
            label, is_training = class_numbers[labels[number]], splits[number] == "1"
        except KeyError as error:
            raise ValueError(f"{archive}: image {number} ({name}) lacks a class or a split") from error
        listing.add("train" if is_training else "test", f"{FOLDER}/images/{name}", label)
    return listing.dataset(list(classes.values()), _pictures(archive, listing))


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
