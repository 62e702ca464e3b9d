"""Tiny ImageNet: a zip with train/<wnid>/images/ and val/images/ + val_annotations.txt; a half of its 200 classes.

The paper's splits are classes 1-100 and 101-200 in the order of their WordNet ids. The publisher's test images have
no labels, so its validation images are the test split.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import members
from rayctsl.data.sources.lists import columns, read_texts

FOLDER = "tiny-imagenet-200"
CLASSES, WORDS, VALIDATION = (f"{FOLDER}/{name}" for name in ("wnids.txt", "words.txt", "val/val_annotations.txt"))


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    archive = folder / entry.files[0].name
    texts = read_texts(archive, [CLASSES, WORDS, VALIDATION])
    words = dict(columns(texts[WORDS], 2, WORDS, "\t"))
    wnids = sorted(texts[CLASSES].split())
    start = 0 if entry.name.endswith("_1") else len(wnids) // 2
    labels = {wnid: label for label, wnid in enumerate(wnids[start : start + entry.num_classes])}
    listing = Listing()
    for wnid, name in sorted(_training_images(archive)):
        if wnid in labels:
            listing.add("train", name, labels[wnid])
    for file, wnid, *_ in columns(texts[VALIDATION], 3, VALIDATION, "\t"):
        if wnid in labels:
            listing.add("test", f"{FOLDER}/val/images/{file}", labels[wnid])
    return listing.dataset([words.get(wnid, wnid).split(",")[0] for wnid in labels], _pictures(archive, listing))


def _training_images(archive: Path) -> Iterator[tuple[str, str]]:
    for member in members(archive):
        parts = member.name.split("/")  # tiny-imagenet-200/train/n01443537/images/n01443537_0.JPEG
        if len(parts) == 5 and parts[1] == "train" and parts[3] == "images" and parts[4].endswith(".JPEG"):
            yield parts[2], member.name


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
