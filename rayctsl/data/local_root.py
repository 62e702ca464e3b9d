"""A folder with one folder per dataset; one appears only complete, whoever is killed and however many write at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rayctsl.data.store import SplitInfo

SPLITS = ("train.arrow", "test.arrow")
ABANDONED_AFTER_SECONDS = 24 * 3600
OLD = "-old"  # ends the hidden name of a dataset that is just being replaced
Make = Callable[[Path], None]
Keep = Callable[[Path], bool]
DOWNLOADS = "_downloads"  # dataset names never start with an underscore


def always(folder: Path) -> bool:
    return True


def never(folder: Path) -> bool:
    return False


class Description(NamedTuple):
    """What a root tells about a dataset without fetching it."""

    train: SplitInfo
    test: SplitInfo
    num_bytes: int


class LocalRoot:
    """A folder with one folder per dataset."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def where(self) -> str:
        return str(self.folder)

    @property
    def downloads(self) -> Path:
        return self.folder / DOWNLOADS

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        found = (entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
        return sorted(name for name in found if self.fetch(name) is not None)

    def fetch(self, name: str) -> Path | None:
        folder = self.folder / name
        return folder if all((folder / split).is_file() for split in SPLITS) else None

    def describe(self, name: str) -> Description:
        import pyarrow as pa

        from rayctsl.data.store import read_info

        files = [self.folder / name / split for split in SPLITS]
        train, test = (read_info(pa.memory_map(str(file)), str(file)) for file in files)
        return Description(train, test, sum(file.stat().st_size for file in files))

    def publish(self, name: str, make: Make, keep: Keep = always) -> Path:
        """Let `make` fill a new folder and give it its name; an existing dataset that `keep` approves of stays."""
        final = self.folder / name
        with self.workspace(name) as temporary:
            found = self.fetch(name)
            if found is not None and keep(found):
                return found
            if found is None and final.exists():
                raise ValueError(f"{final} exists but holds no dataset; move it away first")
            make(temporary)
            _flush_to_disk(temporary)
            if found is not None:
                _swap(temporary, final)
                return final
            try:
                os.rename(temporary, final)
            except OSError:
                if self.fetch(name) is None:
                    raise  # otherwise another node, unseen by the lock, was first: its copy is as good as ours
        return final

    def remove(self, name: str) -> None:
        """Take a dataset away, and what a killed import of it has left; who has it mapped keeps it."""
        with self.workspace(name) as temporary, contextlib.suppress(FileNotFoundError):
            os.rename(self.folder / name, temporary / name)  # gone at once, for everybody

    @contextlib.contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """A hidden folder next to the dataset, gone afterwards.

        The lock spares others double work; that nobody sees half a dataset rests on renaming the folder alone.
        """
        try:
            (self.folder / ".locks").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"data root {self.folder} cannot be written ({error.strerror}): choose another") from None
        with locked(self.folder / ".locks" / f"{name}.lock") as alone:
            if alone:
                self._clear_abandoned(name)
            temporary = self.folder / f".{name}~{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            temporary.mkdir(parents=True)
            try:
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def _clear_abandoned(self, name: str) -> None:
        """Clear what killed processes left: this host's at once (we hold the lock), others' when long untouched."""
        here = f".{name}~{socket.gethostname()}-"
        for folder in self.folder.glob(f".{name}~*"):
            if folder.name.startswith(here) or time.time() - folder.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                if folder.name.endswith(OLD) and not (self.folder / name).exists():
                    os.rename(folder, self.folder / name)  # it was to be replaced, and its successor never came
                else:
                    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock that the kernel releases when the process dies; False where locks do not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # some network filesystems
            yield False
        else:
            yield True


def _swap(new: Path, final: Path) -> None:
    old = new.with_name(new.name + OLD)
    os.rename(final, old)  # who has the old files mapped keeps them
    try:
        os.rename(new, final)
    except OSError:
        os.rename(old, final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _flush_to_disk(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
