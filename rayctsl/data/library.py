"""Datasets by name: how `cub` or `cub@224` becomes two opened splits.

A data root holds one folder per dataset, `<root>/<name>/train.arrow` and `test.arrow`; `<name>@<size>` holds the same
images at another size than the catalog's. Embedded datasets are made on first use. A folder `<name>--<mark>` holds one
of several datasets of a name, such as different owners'; the name alone is what people see and what seeds batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.data.catalog import Reference, keeps_class_mirrored, parse_reference
from rayctsl.data.local_root import LocalRoot
from rayctsl.data.names import EMBEDDED_NAMES, not_found, shown_name
from rayctsl.data.remote_root import cache_folder
from rayctsl.data.roots import data_root, open_root
from rayctsl.data.store import Split, open_split
from rayctsl.progress import Progress, say

if TYPE_CHECKING:
    from rayctsl.data.roots import Root


@dataclass(frozen=True)
class Dataset:
    """The two splits of one dataset."""

    name: str
    train: Split
    test: Split

    @property
    def num_classes(self) -> int:
        return self.train.info.num_classes

    @property
    def checksum(self) -> str:
        """Of all images, labels and class names."""
        splits = [[split.info.checksum, *split.info.class_names] for split in (self.train, self.test)]
        return hashlib.sha256(json.dumps(splits).encode()).hexdigest()[:16]

    @property
    def may_flip(self) -> bool:
        """Whether a mirror image keeps its class."""
        return keeps_class_mirrored(self.train.info.name, self.train.info.flip)


def open_dataset(name: str, root: str | None = None) -> Dataset:
    """Open both splits of a prepared dataset; embedded datasets are made on first use.

    Args:
        name: `cub` at the size of the catalog, or `cub@224`.
    """
    reference = parse_reference(name)
    place = open_root(data_root(root))
    folder = _find(reference, place)
    if folder is None:
        raise not_found(reference, place)
    dataset = Dataset(shown_name(name), open_split(folder / "train.arrow"), open_split(folder / "test.arrow"))
    height = dataset.train.info.shape[0]
    if reference.size is not None and height != reference.size:
        raise ValueError(f"{name} is not prepared: {folder} holds {reference.name} at {height} pixels")
    return dataset


def make_missing(names: Sequence[str], root: str | None = None) -> None:
    """Make the embedded datasets among these that are not there yet, and say so: it takes seconds each, once."""
    place = open_root(data_root(root))
    missing = [name for name in names if name in EMBEDDED_NAMES and _made(name, _local(place)) is None]
    if not missing:
        return
    say(f"making {len(missing)} embedded dataset{'s' * (len(missing) > 1)}, once")
    with Progress(len(missing), "datasets", unit="dataset") as progress:
        for name in missing:
            open_dataset(name, root)
            progress.advance(1, name)


def _find(reference: Reference, place: Root) -> Path | None:
    if reference.name in EMBEDDED_NAMES:
        return _embedded(reference.name, place)
    folder = place.fetch(reference.folder)
    if folder is None and reference.size is not None:
        folder = place.fetch(reference.name)  # imported data has a size of its own, which may be the one asked for
    return folder


def _embedded(name: str, place: Root) -> Path:
    from rayctsl.data.embedded import make_dataset

    local = _local(place)
    return _made(name, local) or local.publish(name, lambda folder: make_dataset(name, folder), keep=_is_current)


def _local(place: Root) -> LocalRoot:
    """Cheaper to make than to copy: every node makes its own when the root is remote."""
    return place if isinstance(place, LocalRoot) else LocalRoot(cache_folder() / "embedded")


def _made(name: str, local: LocalRoot) -> Path | None:
    found = local.fetch(name)
    return found if found is not None and _is_current(found) else None


def _is_current(folder: Path) -> bool:
    from rayctsl.data.embedded.suite import SOURCE

    return open_split(folder / "train.arrow").info.source == SOURCE
