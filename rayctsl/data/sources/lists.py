"""The small files beside the images: text lists and MATLAB lists, read from an archive or refused by name."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rayctsl.data.sources.archives import members


def read_members(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The content of some files of an archive; refuses when one is missing."""
    found: dict[str, bytes] = {}
    for member in members(archive):
        if member.name in names:
            found[member.name] = member.read()
            if len(found) == len(names):
                return found
    missing = [name for name in names if name not in found]
    raise ValueError(f"{archive} has no {', no '.join(missing)}")


def read_texts(archive: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: content.decode("utf-8", "replace") for name, content in read_members(archive, names).items()}


def columns(text: str, count: int, name: str, separator: str | None = None) -> Iterator[list[str]]:
    """The lines of a list, split into `count` columns, the last one with all that is left."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            parts = line.strip().split(separator, count - 1)
            if len(parts) != count:
                raise ValueError(f"{name}, line {number}: {count} columns expected, found '{line.strip()[:60]}'")
            yield parts


def read_matlab(content: bytes, name: str) -> dict[str, Any]:
    """The variables of a .mat file, without singleton dimensions."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(io.BytesIO(content), squeeze_me=True)
    except (MatReadError, ValueError, TypeError, OSError, EOFError, NotImplementedError) as error:
        raise ValueError(f"{name} is not a readable MATLAB file ({error})") from error
