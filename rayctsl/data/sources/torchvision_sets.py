"""The datasets that torchvision has classes for: its parsers and checksums, our download and careful unpacking.

Archives are unpacked into a scratch folder for every run: torchvision takes any folder of the right name for a
complete one, which after a killed run it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Picture, RawDataset
from rayctsl.data.sources.archives import unpack, unpack_gzip
from rayctsl.words import one_line

if TYPE_CHECKING:
    from torchvision.datasets import VisionDataset

Content = Path | np.ndarray  # of a picture
Samples = tuple[list[Content], list[int]]  # with their labels
Options = dict[str, str | bool | type[str]]  # of a class of torchvision's


@dataclass(frozen=True)
class TorchvisionSet:
    """How to call one class. Every dictionary of `train` and `test` gives a part; parts are joined in this order."""

    class_name: str
    train: tuple[Options, ...]
    test: tuple[Options, ...]
    samples: Callable[[VisionDataset], Samples]
    folder: str = ""  # where, below its root, the class looks for its files


def _arrays(dataset: VisionDataset) -> Samples:
    """CIFAR: uint8 [N, H, W, C]; Fashion-MNIST: a tensor [N, H, W]."""
    data = np.asarray(dataset.data)
    return list(data if data.ndim == 4 else data[..., None]), [int(label) for label in dataset.targets]


def _planes(dataset: VisionDataset) -> Samples:
    """SVHN and STL-10: uint8 [N, C, H, W]."""
    return list(dataset.data.transpose(0, 2, 3, 1)), [int(label) for label in dataset.labels]


def _files(dataset: VisionDataset) -> Samples:
    """Classes with a `loader`, which is given the file to open: ours returns the file itself."""
    contents, labels = zip(*(dataset[row] for row in range(len(dataset))), strict=True)
    return [Path(content) for content in contents], [int(label) for label in labels]


def _pets(dataset: VisionDataset) -> Samples:
    return list(dataset._images), list(dataset._labels)  # the one class of files that takes no loader


def _by_split(*splits: str, **more: type[str]) -> tuple[Options, ...]:
    return tuple({"split": split, **more} for split in splits)


_TRAIN: tuple[Options, ...] = ({"train": True},)
_TEST: tuple[Options, ...] = ({"train": False},)
_PATHS = {"loader": str}
CLASSES: dict[str, TorchvisionSet] = {
    "cifar10": TorchvisionSet("CIFAR10", _TRAIN, _TEST, _arrays),
    "cifar100": TorchvisionSet("CIFAR100", _TRAIN, _TEST, _arrays),
    "fashion_mnist": TorchvisionSet("FashionMNIST", _TRAIN, _TEST, _arrays, "FashionMNIST/raw"),
    "svhn": TorchvisionSet("SVHN", _by_split("train"), _by_split("test"), _planes),
    "stl10": TorchvisionSet("STL10", _by_split("train"), _by_split("test"), _planes),
    "stanford_cars": TorchvisionSet(
        "StanfordCars", _by_split("train", **_PATHS), _by_split("test", **_PATHS), _files, "stanford_cars"
    ),
    "aircraft": TorchvisionSet("FGVCAircraft", _by_split("trainval", **_PATHS), _by_split("test", **_PATHS), _files),
    "vgg_flowers": TorchvisionSet(
        "Flowers102", _by_split("train", "val", **_PATHS), _by_split("test", **_PATHS), _files, "flowers-102"
    ),
    "vgg_pets": TorchvisionSet("OxfordIIITPet", _by_split("trainval"), _by_split("test"), _pets, "oxford-iiit-pet"),
    "food101": TorchvisionSet("Food101", _by_split("train", **_PATHS), _by_split("test", **_PATHS), _files),
    "dtd": TorchvisionSet("DTD", _by_split("train", "val", **_PATHS), _by_split("test", **_PATHS), _files, "dtd"),
}


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    from rayctsl.torchvision_import import import_torchvision

    how = CLASSES[entry.origin]
    home = scratch / how.folder
    home.mkdir(parents=True, exist_ok=True)
    for file in entry.files:
        _lay_out(folder / file.name, home)
    make = getattr(import_torchvision().datasets, how.class_name)
    labels, names, contents = {}, {}, {}
    class_names: list[str] = [str(digit) for digit in range(10)]  # SVHN's class does not name its digits
    for split, parts in (("train", how.train), ("test", how.test)):
        samples: Samples = ([], [])
        for options in parts:
            dataset = _opened(make, scratch, options, entry)
            class_names = getattr(dataset, "classes", class_names)
            part = how.samples(dataset)
            samples[0].extend(part[0])
            samples[1].extend(part[1])
        contents[split], labels[split] = samples[0], np.array(samples[1], np.int64)
        names[split] = [_name(content, scratch, f"{split}[{row}]") for row, content in enumerate(samples[0])]
    return RawDataset(tuple(str(name) for name in class_names), labels, names, _pictures(contents, names))


def _lay_out(file: Path, home: Path) -> None:
    """Put a publisher's file where the class expects it, unpacked if it is packed."""
    if file.name.endswith((".tar.gz", ".tgz", ".tar", ".zip")):
        unpack(file, home)
    elif file.suffix == ".gz":
        unpack_gzip(file, home / file.stem)
    else:
        (home / file.name).symlink_to(file.resolve())


def _opened(make: Callable[..., VisionDataset], scratch: Path, options: Options, entry: Entry) -> VisionDataset:
    try:
        return make(str(scratch), **options)
    except (RuntimeError, OSError, KeyError, ValueError, IndexError, EOFError) as error:
        files = ", ".join(file.name for file in entry.files)
        reason = one_line(error).replace(" You can use download=True to download it", "")
        raise ValueError(f"{entry.name}: the files ({files}) are not what torchvision expects: {reason}") from error


def _name(content: Content, scratch: Path, otherwise: str) -> str:
    return str(content.relative_to(scratch)) if isinstance(content, Path) else otherwise


def _pictures(contents: dict[str, list[Content]], names: dict[str, list[str]]) -> Iterator[Picture]:
    for split, members in contents.items():
        for row, content in enumerate(members):
            yield Picture(split, row, names[split][row], content)
