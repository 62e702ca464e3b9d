"""Publishers' files to `RawDataset`, one file per origin. `read_source` downloads what is missing, then reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import RawDataset
from rayctsl.data.sources import (
    class_folders,
    clevr,
    cub,
    dmlab,
    dsprites,
    imagenet,
    kitti,
    patch_camelyon,
    quickdraw,
    retinopathy,
    small_norb,
    stanford_dogs,
    tiny_imagenet,
    torchvision_sets,
)
from rayctsl.data.sources.download import fetch_files

Reader = Callable[[Entry, Path, Path], RawDataset]  # entry, folder of the files, empty scratch folder

READERS: dict[str, Reader] = {
    "tiny_imagenet": tiny_imagenet.read,
    "cub": cub.read,
    "stanford_dogs": stanford_dogs.read,
    "quickdraw": quickdraw.read,
    "imagenet": imagenet.read,
    "clevr": clevr.read,
    "dsprites": dsprites.read,
    "small_norb": small_norb.read,
    "kitti": kitti.read,
    "dmlab": dmlab.read,
    "retinopathy": retinopathy.read,
    "patch_camelyon": patch_camelyon.read,
    **dict.fromkeys(class_folders.LAYOUTS, class_folders.read),
    **dict.fromkeys(torchvision_sets.CLASSES, torchvision_sets.read),
}


def read_source(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    """Everything of one dataset, its images not yet decoded.

    Args:
        folder: where the publisher's files are, or are downloaded to.
        scratch: for unpacked files; the caller removes it after the last picture was taken.
    """
    if not (entry.origin == "imagenet" and imagenet.is_unpacked(folder)):
        fetch_files(entry, folder)
    return READERS[entry.origin](entry, folder, scratch)
