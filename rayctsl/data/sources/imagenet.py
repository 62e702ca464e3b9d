"""ImageNet's WordNet splits, from the three archives of ILSVRC 2012 or from folders that hold the same images.

Archives: a tar of one tar per class, a flat tar of validation images, and a devkit whose lists give those their class.
Folders: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or a flat val/ beside the devkit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.entries import SOURCES_FOLDER, Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import Member, inner_members, members
from rayctsl.data.sources.lists import read_matlab, read_members

META = "ILSVRC2012_devkit_t12/data/meta.mat"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


def is_unpacked(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / "val").is_dir()


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    number = int(entry.name.removeprefix("imagenet_"))
    splits = json.loads((SOURCES_FOLDER / "imagenet_splits.json").read_text())["splits"]
    classes: dict[str, str] = next(split["classes"] for split in splits if split["split"] == number)
    labels = {wnid: label for label, wnid in enumerate(classes)}
    train_tar, val_tar, devkit = (folder / file.name for file in entry.files)
    if is_unpacked(folder):
        return _read_folders(folder, labels, list(classes.values()), devkit)
    listing = Listing()
    for wnid, names in _class_archives(train_tar, labels):
        for name in names:
            listing.add("train", name, labels[wnid])
    for name, wnid in _validation_classes(devkit).items():
        if wnid in labels:
            listing.add("test", name, labels[wnid])
    return listing.dataset(list(classes.values()), _pictures(train_tar, val_tar, labels, listing))


def _class_archives(train_tar: Path, labels: dict[str, int]) -> list[tuple[str, list[str]]]:
    found = []
    for member in members(train_tar):  # a comprehension would keep the archive open for as long as its error is kept
        if _wnid(member) in labels:
            found.append((_wnid(member), sorted(image.name for image in inner_members(member))))
    if missing := sorted(set(labels) - {wnid for wnid, _ in found}):
        raise ValueError(f"{train_tar} has no {missing[0]}.tar ({len(missing)} classes are missing)")
    return sorted(found)


def _pictures(train_tar: Path, val_tar: Path, labels: dict[str, int], listing: Listing) -> Iterator[Picture]:
    for member in members(train_tar):
        if _wnid(member) in labels:
            for image in inner_members(member):
                yield listing.pick(image.name, image.read())
    for member in members(val_tar):
        if member.name in listing:
            yield listing.pick(member.name, member.read())


def _wnid(member: Member) -> str:
    return Path(member.name).stem


def _validation_classes(devkit: Path) -> dict[str, str]:
    """The class of every validation image, by its file name."""
    contents = read_members(devkit, [META, TRUTH])
    synsets = np.atleast_1d(read_matlab(contents[META], META)["synsets"])
    wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets if int(row["num_children"]) == 0}
    try:
        truth = [wnids[int(line)] for line in contents[TRUTH].decode().split()]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{devkit}: {TRUTH} names a class that meta.mat does not have ({error})") from error
    return {f"ILSVRC2012_val_{number:08d}.JPEG": wnid for number, wnid in enumerate(truth, 1)}


def _read_folders(folder: Path, labels: dict[str, int], class_names: list[str], devkit: Path) -> RawDataset:
    listing = Listing()
    for wnid, label in labels.items():
        for file in _images(folder / "train" / wnid):
            listing.add("train", str(file.relative_to(folder)), label)
    if any((folder / "val" / wnid).is_dir() for wnid in labels):
        for wnid, label in labels.items():
            for file in _images(folder / "val" / wnid):
                listing.add("test", str(file.relative_to(folder)), label)
    else:
        if not devkit.is_file():
            raise ValueError(f"{folder / 'val'} has no class folders; put {devkit.name} into {folder} to sort it")
        for name, wnid in _validation_classes(devkit).items():
            if wnid in labels:
                listing.add("test", f"val/{name}", labels[wnid])
    names = [*listing.names["train"], *listing.names["test"]]
    return listing.dataset(class_names, (listing.pick(name, folder / name) for name in names))


def _images(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.glob("*") if file.suffix.upper() in (".JPEG", ".JPG"))
    if not files:
        raise ValueError(f"{folder} is missing or has no .JPEG images")
    return files
