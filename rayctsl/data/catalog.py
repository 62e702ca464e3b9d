"""Datasets by name: the catalog, and how a reference such as `cub@224` is read. Nothing here is heavy to import."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rayctsl.data.entries import Entry, all_entries
from rayctsl.data.vtab import vtab_entries
from rayctsl.words import nearest

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*")
MAX_SIZE = 1024
CATALOG: dict[str, Entry] = {entry.name: entry for entry in (*all_entries(), *vtab_entries())}

ALIASES = {
    "birds": "cub",
    "cub200": "cub",
    "cub_200_2011": "cub",
    "dogs": "stanford_dogs",
    "cars": "stanford_cars",
    "flowers": "vgg_flowers",
    "flowers102": "vgg_flowers",
    "pets": "vgg_pets",
    "oxford_iiit_pet": "vgg_pets",
    "fgvc_aircraft": "aircraft",
    "textures": "dtd",
    "food": "food101",
    "fmnist": "fashion_mnist",
    "tiny_imagenet": "tiny_imagenet_1",
    "imagenet": "imagenet_1",
}

# Letters, digits, and what is asked for left and right or an angle: a mirror image is of another class, or of none.
NOT_MIRRORED = frozenset(
    ("svhn", "clevr_distance", "dsprites_location", "dsprites_orientation", "norb_azimuth", "dmlab")
)


def keeps_class_mirrored(name: str, told: bool | None = None) -> bool:
    """Whether random flips do a dataset no harm.

    Args:
        told: what the dataset's own file says, if anything.
    """
    return name not in NOT_MIRRORED if told is None else told


@dataclass(frozen=True)
class Reference:
    """A dataset and maybe a size. Example: Reference("cub", 224)"""

    name: str
    size: int | None = None

    @property
    def folder(self) -> str:
        """The folder's name below the data root: the catalog's size goes without saying."""
        known = CATALOG.get(self.name)
        return self.name if self.size is None or (known and self.size == known.size) else f"{self.name}@{self.size}"

    def __str__(self) -> str:
        return self.name if self.size is None else f"{self.name}@{self.size}"


def parse_reference(text: str) -> Reference:
    """Read `name` or `name@size`."""
    name, at, size = text.partition("@")
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"'{text}' is not a dataset name: use a-z, 0-9, _ and -, for a size add @224")
    if not at:
        return Reference(name)
    if not re.fullmatch(r"[0-9]{1,4}", size) or not 1 <= int(size) <= MAX_SIZE:
        raise ValueError(f"'{text}' has no usable size: write {name}@64, at most {MAX_SIZE}")
    return Reference(name, int(size))


def find_entry(name: str) -> Entry:
    """The catalog's entry, or a ValueError that proposes the nearest name."""
    if name not in CATALOG:
        guess = closest_name(name, list(CATALOG))
        hint = f"did you mean '{guess}'?" if guess else "python -m rayctsl.data list shows all"
        raise ValueError(f"dataset '{name}' is not in the catalog; {hint}")
    return CATALOG[name]


def closest_name(name: str, names: Sequence[str]) -> str | None:
    if name in ALIASES and ALIASES[name] in names:
        return ALIASES[name]
    return nearest(name, names)
