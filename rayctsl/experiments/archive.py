"""The finished cells of several experiments as one small file, so that another machine goes on where this one stopped.

Weights stay behind: a training is taken along only when it has been tested.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rayctsl.storage import Storage

CELL = "cells/{}"


def pack_cells(folders: Mapping[str, Storage]) -> bytes:
    """The cells of every folder, under its name, as a tar.xz; equal cells give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for folder, storage in sorted(folders.items()):
            names = [name for name in storage.names("cells") if name.endswith(".json")]
            for name in names:
                tests = name.removesuffix(".json").replace("train-", "test-", 1) + "-at"
                if name.startswith("train-") and not any(other.startswith(tests) for other in names):
                    continue
                content = storage.read(CELL.format(name))
                entry = tarfile.TarInfo(f"{folder}/{CELL.format(name)}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpack_cells(path: Path, folders: Mapping[str, Storage]) -> int:
    """Put an archive's cells into the folders that lack them; returns how many."""
    taken = 0
    try:
        with tarfile.open(path, mode="r:xz") as archive:
            for entry in archive:
                folder, _, name = entry.name.partition("/")
                plain = entry.isfile() and name.startswith("cells/") and name.count("/") == 1 and ".." not in name
                if not plain or folder not in folders or folders[folder].exists(name):
                    continue
                content = archive.extractfile(entry)
                assert content is not None
                folders[folder].write(name, content.read())
                taken += 1
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} does not hold cells: {error}") from None
    return taken
