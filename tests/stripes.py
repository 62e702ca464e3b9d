"""Four kinds of noisy stripes, easy for a convolution: as a dataset of a data root, and as folders of JPEG files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, open_split, write_split

CLASSES = ("rows", "columns", "falling", "rising")


def draw(count: int, seed: int, side: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, side, side] and their labels."""
    labels = np.arange(count) % 4
    y, x = np.mgrid[:side, :side]
    kinds = np.stack([y % 4 < 2, x % 4 < 2, (x + y) % 4 < 2, (x - y) % 4 < 2]) * 120 + 60
    noise = np.random.default_rng(seed).normal(0, 25, (count, side, side))
    return np.clip(kinds[labels] + noise, 0, 255).astype(np.uint8), labels


def write_stripes(root: Path, name: str = "stripes") -> Dataset:
    """Put the dataset into a data root."""
    for split, count in (("train", 160), ("test", 80)):
        images, labels = draw(count, seed=len(split))
        info = SplitInfo(name, split, (12, 12, 1), CLASSES)
        write_split(root / name / f"{split}.arrow", images[..., None], labels, info)
    return Dataset(name, open_split(root / name / "train.arrow"), open_split(root / name / "test.arrow"))


def write_pictures(folder: Path, count: int = 40, side: int = 24, colour: bool = True) -> Path:
    """`<class>/<number>.jpg`, as people have their pictures."""
    images, labels = draw(count, seed=7, side=side)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / CLASSES[label] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).convert("RGB" if colour else "L").save(path, quality=95)
    return folder
