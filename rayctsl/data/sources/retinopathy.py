"""Diabetic Retinopathy (Kaggle): train.zip, test.zip, and a list of grades 0 to 4 for each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import members
from rayctsl.data.sources.lists import read_texts

CLASS_NAMES = ("none", "mild", "moderate", "severe", "proliferative")


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    train, test, train_list, test_list = (folder / file.name for file in entry.files)
    texts = {
        "train": read_texts(train_list, ["trainLabels.csv"])["trainLabels.csv"],
        "test": test_list.read_text("utf-8", "replace"),
    }
    listing = Listing()
    for split, text in texts.items():
        for row in csv.DictReader(io.StringIO(text)):
            if not {"image", "level"} <= set(row) or row["level"] not in {"0", "1", "2", "3", "4"}:
                raise ValueError(f"the list of {split} images has no columns image and level with grades 0 to 4")
            listing.add(split, f"{split}/{row['image']}.jpeg", int(row["level"]))
    return listing.dataset(CLASS_NAMES, _pictures([train, test], listing))


def _pictures(archives: list[Path], listing: Listing) -> Iterator[Picture]:
    for archive in archives:
        for member in members(archive):
            if member.name in listing:
                yield listing.pick(member.name, member.read())
