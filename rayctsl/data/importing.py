"""The user's own images: a folder of class folders, or an `.npz` of arrays, becomes a dataset of the data root."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from rayctsl.data.album import LABELS, album_files
from rayctsl.data.catalog import CATALOG, NAME_PATTERN
from rayctsl.data.images import is_grey, short_side
from rayctsl.data.local_root import always, never
from rayctsl.data.names import EMBEDDED_NAMES, shown_name
from rayctsl.data.prepare import IMPORTED, write_dataset
from rayctsl.data.raw import Picture, RawDataset
from rayctsl.data.roots import data_root, open_root

MAX_SIDE = 128  # pixels; larger pictures are made smaller unless a size is asked for
TEST_SHARE = 0.2  # of a folder that says nothing of a split
MAX_NPZ_BYTES = 64 * 2**30
IMAGE_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"))
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),  # left out where there are train and test
}
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def import_dataset(
    name: str,
    path: Path,
    root: str | None = None,
    size: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    replace: bool = False,
    flip: bool = True,
    published: bool = False,
    keep: bool = False,
) -> Path:
    """Import an image folder or an `.npz` under a name of its own; returns the folder with both splits.

    Args:
        size: pixels a side; default: the size that half of the pictures of a folder reach, at most MAX_SIDE, and
            the arrays' own.
        seed: of the split when the folder has no train/ and test/.
        flip: whether a mirror image keeps its class.
        published: these are the images that the catalog means by this name.
        keep: a dataset of this name is taken for this one, and left as it is.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"'{name}' is not a usable name: a-z, 0-9, _ and -, beginning with a letter or digit")
    if name in EMBEDDED_NAMES:
        raise ValueError(f"'{name}' is an embedded dataset; choose another name")
    if name in CATALOG and not published:
        raise ValueError(
            f"'{name}' is the catalog's name for {CATALOG[name].title}; choose another name, "
            "or add --published if these are its images"
        )
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    place = open_root(data_root(root))
    if keep and (found := place.fetch(name)):
        return found
    if name in place.names() and not replace:
        raise ValueError(f"'{name}' is already in {place.where}; choose another name or add --replace")

    def make(folder: Path) -> None:
        if path.is_dir():
            raw = read_folder(path, seed)
            channels = 1 if all(is_grey(p.content) for p in raw.pictures if isinstance(p.content, Path)) else 3
            side = size or usual_side(raw.pictures)
            shape = (side, side, channels)
        else:
            raw, shape = read_npz(path)
            shape = shape if size is None else (size, size, shape[2])
        if len(raw.class_names) < 2:
            raise ValueError(f"{path} has one class only ({raw.class_names[0]!r}): there is nothing to tell apart")
        write_dataset(folder, raw, shown_name(name), shape, f"{IMPORTED}{path.name}", "the owner's", workers, flip)

    return place.publish(name, make, never if replace else always)


def usual_side(pictures: Iterable[Picture]) -> int:
    """The shorter side that half of the pictures reach, at most MAX_SIDE."""
    files = [picture.content for picture in pictures if isinstance(picture.content, Path)]
    sides = [side for file in files if (side := short_side(file)) is not None]
    return min(MAX_SIDE, int(np.median(sides))) if sides else MAX_SIDE


def read_folder(path: Path, seed: int) -> RawDataset:
    """The pictures that `picture_files` finds, with their labels."""
    files = picture_files(path, seed)
    class_names = sorted(files["train"])
    labels, names, pictures = {}, {}, []
    for split, classes in files.items():
        rows = [(file, class_names.index(name)) for name, members in sorted(classes.items()) for file in members]
        if not rows:
            raise ValueError(f"{path}: no images are left for the {split} split")
        labels[split] = np.array([label for _, label in rows])
        names[split] = [str(file.relative_to(path)) for file, _ in rows]
        pictures += [Picture(split, row, names[split][row], file) for row, (file, _) in enumerate(rows)]
    return RawDataset(tuple(class_names), labels, names, pictures)


def picture_files(path: Path, seed: int = 0) -> dict[str, dict[str, list[Path]]]:
    """Every class's files in both splits.

    `train/<class>/…` and `test/<class>/…`, or `<class>/…` or a Meta-Album with a seeded split of every class.
    """
    if (path / LABELS).is_file():
        return _seeded_split(album_files(path), seed)
    splits = _split_folders(path)
    if not splits:
        return _seeded_split(_class_files(path), seed)
    files = {split: _class_files(splits[split]) for split in ("train", "test")}
    if strangers := sorted(set(files["test"]) - set(files["train"])):
        raise ValueError(
            f"{path}: class '{strangers[0]}' is in {splits['test'].name}/ but not in {splits['train'].name}/"
        )
    return files


def _split_folders(path: Path) -> dict[str, Path]:
    """The folders that are train and test, however spelt; none if a folder's folders are its classes."""
    folders = sorted(entry for entry in path.iterdir() if _is_class(entry))
    kinds = [SPLIT_NAMES.get(folder.name.lower()) for folder in folders]
    if kinds.count("train") == kinds.count("test") == 1:
        return {kind: folder for kind, folder in zip(kinds, folders, strict=True) if kind}
    plain = [folder for folder in folders if folder.name in ("train", "test")]
    if plain or (folders and all(kinds) and all(any(map(_is_class, folder.iterdir())) for folder in folders)):
        named = " and ".join(f"{folder.name}/" for folder, kind in zip(folders, kinds, strict=True) if kind)
        raise ValueError(
            f"{path} has {named}: wanted are train/ and test/ with a folder for every class in both, "
            "or a folder for every class and nothing else"
        )
    return {}


def read_npz(path: Path) -> tuple[RawDataset, tuple[int, int, int]]:
    """x_train, x_test uint8 [N, H, W] or [N, H, W, C]; y_train, y_test; optional class_names."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_NPZ_BYTES:
                raise ValueError(f"{path.name} unpacks to more than {MAX_NPZ_BYTES // 2**30} GiB")
        with np.load(path, allow_pickle=False) as archive:
            if lacking := [key for key in ARRAYS if key not in archive]:
                raise ValueError(f"{path.name} has no {' and no '.join(lacking)}")
            arrays = {key: archive[key] for key in ARRAYS}
            named = archive.get("class_names")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise ValueError(f"{path.name} is not a readable .npz file ({error})") from error
    except ValueError as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise ValueError(f"{path.name} holds Python objects; save plain arrays of numbers and strings") from error
        raise
    images = {split: _checked_images(path.name, f"x_{split}", arrays[f"x_{split}"]) for split in ("train", "test")}
    shape = images["train"].shape[1:]
    if images["test"].shape[1:] != shape:
        raise ValueError(f"{path.name}: x_train has images of {shape}, x_test of {images['test'].shape[1:]}")
    labels = {split: _checked_labels(path.name, split, arrays, len(images[split])) for split in ("train", "test")}
    num_labels = int(max(values.max() for values in labels.values())) + 1
    class_names = tuple(str(number) for number in range(num_labels))
    if named is not None:
        if named.ndim != 1 or named.dtype.kind not in "US":
            raise ValueError(f"{path.name}: class_names must be a list of strings")
        class_names = tuple(n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in named.tolist())
    if num_labels > len(class_names):
        raise ValueError(f"{path.name}: label {num_labels - 1} has no name, class_names has {len(class_names)}")
    names = {split: [str(row) for row in range(len(images[split]))] for split in images}
    return RawDataset(class_names, labels, names, _array_pictures(images)), (shape[0], shape[1], shape[2])


def _array_pictures(images: dict[str, np.ndarray]) -> Iterator[Picture]:
    for split, array in images.items():
        for row, image in enumerate(array):
            yield Picture(split, row, f"x_{split}[{row}]", image)


def _checked_images(file: str, key: str, images: np.ndarray) -> np.ndarray:
    if images.dtype != np.uint8:
        raise ValueError(f"{file}: {key} must be uint8 in 0..255, not {images.dtype}")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise ValueError(f"{file}: {key} must be [N, H, W] or [N, H, W, C] with 1 or 3 channels, not {images.shape}")
    if 0 in images.shape:
        raise ValueError(f"{file}: {key} is empty")
    return images


def _checked_labels(file: str, split: str, arrays: dict[str, np.ndarray], count: int) -> np.ndarray:
    labels = arrays[f"y_{split}"]
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{file}: y_{split} must be whole numbers, not {labels.dtype}")
    if labels.ndim != 1:
        raise ValueError(f"{file}: y_{split} must be one-dimensional, not {labels.shape}")
    if len(labels) != count:
        raise ValueError(f"{file}: {count} images in x_{split} but {len(labels)} labels in y_{split}")
    if labels.min() < 0:
        raise ValueError(f"{file}: y_{split} has the negative label {labels.min()}")
    return labels.astype(np.int64)


def _class_files(folder: Path) -> dict[str, list[Path]]:
    classes = {entry.name: _image_files(entry) for entry in folder.iterdir() if _is_class(entry)}
    if not classes:
        raise ValueError(f"{folder} has no class folders")
    if empty := sorted(name for name, files in classes.items() if not files):
        raise ValueError(f"{folder / empty[0]} has no images")
    return classes


def _is_class(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _image_files(folder: Path) -> list[Path]:
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, f) for f in files if Path(f).suffix.lower() in IMAGE_SUFFIXES and not f.startswith(".")]
    return sorted(found)


def _seeded_split(classes: dict[str, list[Path]], seed: int) -> dict[str, dict[str, list[Path]]]:
    split: dict[str, dict[str, list[Path]]] = {"train": {}, "test": {}}
    for number, (name, files) in enumerate(sorted(classes.items())):
        order = np.random.default_rng([seed, number]).permutation(len(files))
        # Every class keeps a training image; one of two or more goes to the test at least.
        tests = min(len(files) - 1, max(1, round(TEST_SHARE * len(files))))
        split["test"][name] = sorted(files[i] for i in order[:tests])
        split["train"][name] = sorted(files[i] for i in order[tests:])
    return split
