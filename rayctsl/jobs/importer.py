"""An uploaded archive becomes a dataset: `python -m rayctsl.jobs.importer`, a process of its own with little power.

It may use so much memory, time and disk and no more, reads one file and writes below the data root, and says how it
goes on stdout, a JSON object a line: {"stage": …, "files": …}, and at last {"done": true} or {"error": a sentence}.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rayctsl.data.importing import import_dataset, read_folder
from rayctsl.data.sources.archives import Member, members
from rayctsl.words import one_line

NOT_OURS = ("__MACOSX",)
MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What an archive may become."""

    files: int = 200_000
    unpacked_bytes: int = 8 * 2**30
    memory_bytes: int = 6 * 2**30
    seconds: int = 1800


def import_archive(archive: Path, name: str, root: str, limits: Limits, size: int | None = None, seed: int = 0) -> None:
    """Import a zip, a tar or an npz under a name; ValueError says what is wrong with it, by the names of its files."""
    folder = unpacked(archive)
    folder.mkdir()
    try:
        if _is_npz(archive):
            source = folder / "arrays.npz"
            source.symlink_to(archive)
            _check_size(sum(member.file_size for member in zipfile.ZipFile(archive).infolist()), limits)
        else:
            source = folder / "images"
            source.mkdir()
            _survey(archive, limits)
            _unpack(archive, source)
            source = _top(source)
            if len(read_folder(source, seed).class_names) < 2:
                raise ValueError("there is only one class: put the images of each class into a folder of its own")
        _say(stage="reading images")
        import_dataset(name, source, root, size, seed, workers=1, replace=True)
    finally:
        shutil.rmtree(folder)


def unpacked(archive: Path) -> Path:
    """Where an archive is unpacked: beside it, so that whoever ends this process can clear it away."""
    return archive.with_suffix(".unpacked")


def _survey(archive: Path, limits: Limits) -> None:
    """Refuse what is too much, or cannot be told apart on every disk, before anything is written."""
    total, lower = 0, dict[str, str]()
    for count, member in enumerate(_ours(archive), 1):
        if count > limits.files:
            raise ValueError(f"the archive has more than {limits.files:,} files")
        total += member.size
        _check_size(total, limits)
        for part in (PurePosixPath(member.name), *PurePosixPath(member.name).parents):
            known = lower.setdefault(str(part).lower(), str(part))
            if known != str(part):
                raise ValueError(f"two names differ only in capital letters: '{known}' and '{part}'")


def _unpack(archive: Path, folder: Path) -> None:
    for count, member in enumerate(_ours(archive), 1):
        member.write(folder / member.name)
        if count % 500 == 0:
            _say(stage="unpacking", files=count)


def _ours(archive: Path) -> Iterator[Member]:
    for member in members(archive):
        parts = PurePosixPath(member.name).parts
        if parts and parts[0] not in NOT_OURS and not parts[-1].startswith("."):
            yield member


def _top(folder: Path) -> Path:
    """Down through folders that hold one folder and nothing else, as zipping a folder makes them."""
    inside = list(folder.iterdir())
    while len(inside) == 1 and inside[0].is_dir() and any(entry.is_dir() for entry in inside[0].iterdir()):
        folder, inside = inside[0], list(inside[0].iterdir())
    return folder


def _is_npz(archive: Path) -> bool:
    if not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as opened:
        return "x_train.npy" in opened.namelist()


def _check_size(total: int, limits: Limits) -> None:
    if total > limits.unpacked_bytes:
        raise ValueError(f"the archive unpacks to more than {limits.unpacked_bytes // MIB:,} MiB")


def _say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def _confine(limits: Limits) -> None:
    """Give away what this process does not need."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.unpacked_bytes, limits.unpacked_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    os.nice(10)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rayctsl.jobs.importer")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--size", type=int)
    parser.add_argument("--seed", type=int, default=0)
    for name in ("files", "unpacked-bytes", "memory-bytes", "seconds"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Limits, name.replace("-", "_")))
    options = parser.parse_args(argv)
    limits = Limits(options.files, options.unpacked_bytes, options.memory_bytes, options.seconds)
    _confine(limits)
    try:
        import_archive(options.archive, options.name, options.root, limits, options.size, options.seed)
    except (ValueError, OSError, MemoryError) as error:
        _say(error=_without_paths(error, options.archive))
        return 2
    _say(done=True)
    return 0


def _without_paths(error: BaseException, archive: Path) -> str:
    """One sentence without this machine's folders: the user knows the names inside the archive only."""
    if isinstance(error, MemoryError):
        return "an image or array of the archive needs more memory than an import may use"
    folder = re.escape(str(unpacked(archive)))
    text = re.sub(folder + r"/(?:images|arrays\.npz)(?!/)", "the archive", one_line(error, 2000))
    text = re.sub(folder + r"/(?:images/)?", "", text).replace(str(archive), "the archive")
    return text.replace(f"{archive.parent}/", "")


if __name__ == "__main__":
    sys.exit(main())
