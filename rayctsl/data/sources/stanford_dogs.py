"""Stanford Dogs: images.tar with Images/<class>/<image>.jpg, lists.tar with train_list.mat and test_list.mat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import members
from rayctsl.data.sources.lists import read_matlab, read_members


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    images, lists = (folder / file.name for file in entry.files)
    names = {"train": "train_list.mat", "test": "test_list.mat"}
    contents = read_members(lists, list(names.values()))
    listing = Listing()
    breeds: dict[int, str] = {}
    for split, name in names.items():
        table = read_matlab(contents[name], name)
        if "file_list" not in table or "labels" not in table:
            raise ValueError(f"{lists}: {name} has no file_list or no labels")
        files, labels = np.atleast_1d(table["file_list"]), np.atleast_1d(table["labels"])
        if len(files) != len(labels):
            raise ValueError(f"{lists}: {name} has {len(files)} files but {len(labels)} labels")
        for file, label in zip(files.tolist(), labels.tolist(), strict=True):
            breeds[int(label)] = str(file).split("/")[0].split("-", 1)[-1].replace("_", " ")
            listing.add(split, f"Images/{file}", int(label) - 1)
    if sorted(breeds) != list(range(1, len(breeds) + 1)):
        raise ValueError(f"{lists}: the labels are not 1 to {len(breeds)}")
    return listing.dataset([breeds[number] for number in sorted(breeds)], _pictures(images, listing))


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
