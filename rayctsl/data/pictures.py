"""A dataset by its name, or by the path of pictures: a folder of class folders or an `.npz`, imported on first use.

What was imported is kept in the data root and found again by the files' names, sizes and times; changed pictures are
imported anew. Its name is the folder's: the mark that the data root adds tells apart folders that are called alike.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.album import INFO, LABELS
from rayctsl.data.catalog import CATALOG
from rayctsl.data.importing import import_dataset, picture_files
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.names import EMBEDDED_NAMES, MARK, is_path


def find_dataset(name_or_path: str, root: str | None = None) -> Dataset:
    """Open a dataset of the data root, or import the pictures at a path."""
    if not is_path(name_or_path):
        return open_dataset(name_or_path, root)
    path = Path(name_or_path).expanduser().resolve()
    if not path.exists():
        raise ValueError(f"there is no folder or file {name_or_path}")
    stored = f"{dataset_name(path)}{MARK}{_mark(path)}"
    import_dataset(stored, path, root, keep=True)
    return open_dataset(stored, root)


def dataset_name(path: Path) -> str:
    """Example: dataset_name(Path("/home/me/My Pictures")) == "my-pictures" """
    name = re.sub(r"[^a-z0-9_]+", "-", path.stem.lower() if path.is_file() else path.name.lower()).strip("-_")
    if name in CATALOG or name in EMBEDDED_NAMES:
        return f"my-{name}"
    return name or "pictures"


def _mark(path: Path) -> str:
    files = sorted(_stamp(file, path) for file in _files(path)) if path.is_dir() else [_stamp(path, path.parent)]
    return hashlib.sha256(json.dumps([str(path), files]).encode()).hexdigest()[:12]


def _files(folder: Path) -> Iterator[Path]:
    """What an import reads, also where links lead to it, and nothing else."""
    yield from (folder / name for name in (LABELS, INFO) if (folder / name).is_file())
    for classes in picture_files(folder).values():
        for files in classes.values():
            yield from files


def _stamp(file: Path, folder: Path) -> tuple[str, int, int]:
    facts = file.stat() if file.exists() else file.lstat()  # a broken link is refused when it is read
    return str(file.relative_to(folder)), facts.st_size, facts.st_mtime_ns
