"""Is a dataset what it claims to be: counts, classes, checksums, and which images are damaged."""

from __future__ import annotations

import numpy as np

from rayctsl.data.catalog import CATALOG, parse_reference
from rayctsl.data.library import Dataset
from rayctsl.data.store import Split, damaged_images, verify_split

NAMED_AT_MOST = 10


def problems(dataset: Dataset) -> list[str]:
    """Everything wrong with a dataset, one sentence each; empty when it is sound."""
    found = [*_split_problems(dataset.train), *_split_problems(dataset.test)]
    if dataset.train.info.class_names != dataset.test.info.class_names:
        found.append("the training and the test split have different classes")
    if dataset.train.info.shape != dataset.test.info.shape:
        found.append("the training and the test split have images of different shapes")
    absent = np.setdiff1d(np.arange(dataset.num_classes), dataset.train.labels)
    if len(absent):
        names = ", ".join(dataset.train.info.class_names[label] for label in absent[:NAMED_AT_MOST])
        found.append(f"{len(absent)} classes have no training image: {names}")
    return found + _catalog_problems(dataset)


def _split_problems(split: Split) -> list[str]:
    info = split.info
    found = []
    stored = sum(len(chunk) for chunk in split.chunks())
    if not info.count == stored == len(split.labels):
        found.append(f"{info.split}: {info.count:,} images announced, {stored:,} stored, {len(split.labels):,} labels")
    if len(split.labels) and not 0 <= split.labels.min() <= split.labels.max() < info.num_classes:
        found.append(f"{info.split}: labels outside 0..{info.num_classes - 1}")
    damaged = damaged_images(split)
    if damaged:
        more = f" and {len(damaged) - NAMED_AT_MOST} more" if len(damaged) > NAMED_AT_MOST else ""
        found.append(f"{info.split}: {len(damaged)} damaged images: {', '.join(damaged[:NAMED_AT_MOST])}{more}")
    try:
        verify_split(split)
    except ValueError as error:
        found.append(f"{info.split}: {error}")
    return found


def _catalog_problems(dataset: Dataset) -> list[str]:
    """Prepared data must have the publisher's counts; imported data under the same name is the user's affair."""
    entry = CATALOG.get(parse_reference(dataset.name).name)
    if entry is None or dataset.train.info.source != entry.home:
        return []
    found = []
    for split, expected in ((dataset.train, entry.num_train), (dataset.test, entry.num_test)):
        if expected is not None and len(split) != expected:
            found.append(f"{split.info.split}: {len(split):,} images, the publisher has {expected:,}")
    if dataset.num_classes != entry.num_classes:
        found.append(f"{dataset.num_classes} classes, the publisher has {entry.num_classes}")
    return found
