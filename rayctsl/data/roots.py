"""Where datasets live: a local folder, or a pyarrow filesystem such as S3 with a local copy per node.

Both kinds answer the same calls; `where` names the place without its credentials. A dataset folder appears only
complete, whoever is killed at whatever moment and however many write it at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem, copy_files

from rayctsl.data.store import SplitInfo, open_split, read_info, verify_split

SPLITS = ("train.arrow", "test.arrow")
ABANDONED_AFTER_SECONDS = 24 * 3600
Make = Callable[[Path], None]
Keep = Callable[[Path], bool]
DOWNLOADS = "_downloads"  # dataset names never start with an underscore


def always(folder: Path) -> bool:
    return True


def never(folder: Path) -> bool:
    return False


def open_root(root: str) -> LocalRoot | RemoteRoot:
    """The root behind a path or a pyarrow URI."""
    if root.startswith("file://"):
        root = root.removeprefix("file://")
    return RemoteRoot(root) if "://" in root else LocalRoot(Path(root).expanduser())


def cache_folder() -> Path:
    """Where this node keeps its copies of remote data."""
    chosen = os.environ.get("RAYCTSL_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "rayctsl" / "cache"


Answer = TypeVar("Answer")


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
        hidden = self.folder / f".{name}~{socket.gethostname()}-{os.getpid()}-removed"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder / name, hidden)  # gone at once, for everybody
            shutil.rmtree(hidden, ignore_errors=True)
        if any(self.folder.glob(f".{name}~*")):
            with self.workspace(name):
                pass  # entering it clears away

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
                self._remove_abandoned(name)
            temporary = self.folder / f".{name}~{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            temporary.mkdir(parents=True)
            try:
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def _remove_abandoned(self, name: str) -> None:
        """Remove what killed processes left: this host's at once (we hold the lock), others' when long untouched."""
        here = f".{name}~{socket.gethostname()}-"
        for folder in self.folder.glob(f".{name}~*"):
            if folder.name.startswith(here) or time.time() - folder.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


class RemoteRoot:
    """A prefix of a pyarrow filesystem; datasets are copied once to this node's cache and mapped from there."""

    def __init__(self, uri: str):
        self.where = _without_credentials(uri).split("?")[0]
        try:
            self.filesystem, self.prefix = FileSystem.from_uri(uri)
        except (ValueError, OSError, NotImplementedError) as error:
            raise ValueError(f"data root {self.where} cannot be opened: {_first_line(error)}") from error
        key = hashlib.sha256(uri.encode()).hexdigest()[:16]
        self.cache = LocalRoot(cache_folder() / key)

    @property
    def downloads(self) -> Path:
        return cache_folder() / DOWNLOADS

    def names(self) -> list[str]:
        infos = self._ask(lambda: self.filesystem.get_file_info(FileSelector(self.prefix, allow_not_found=True)))
        folders = [info.base_name for info in infos if not info.is_file and not info.base_name.startswith((".", "_"))]
        return sorted(name for name in folders if self._stat(name) is not None)

    def fetch(self, name: str) -> Path | None:
        """The dataset's folder in the cache, copied and verified on first use; None when the root has none."""
        for _ in range(3):
            stamp = self._stamp(name)
            if stamp is None:
                return None
            if found := self.cache.fetch(f"{name}~{stamp}"):
                return found
            try:
                copy = self.cache.publish(f"{name}~{stamp}", partial(self._copy, name))
            except (ValueError, OSError) as error:
                if self._stamp(name) == stamp:
                    raise ValueError(f"{self.where}/{name} cannot be copied: {_first_line(error)}") from error
                continue  # replaced while it was copied
            if self._stamp(name) == stamp:
                self._forget_older(name, keep=copy)
                return copy
        raise ValueError(f"{self.where}/{name} keeps changing while it is copied; try again later")

    def describe(self, name: str) -> Description:
        files = [f"{self.prefix}/{name}/{split}" for split in SPLITS]
        train, test = (
            read_info(self._ask(partial(self.filesystem.open_input_file, file)), f"{self.where}/{name}")
            for file in files
        )
        return Description(train, test, sum(info.size for info in self._stat(name) or []))

    def publish(self, name: str, make: Make, keep: Keep = always) -> Path:
        """Make the dataset in the cache, then upload it; see `LocalRoot.publish`."""
        with self.cache.workspace(f"{name}~upload") as folder:
            found = self.fetch(name)
            if found is None or not keep(found):
                make(folder)
                if found is not None:  # a dataset is there when its last file is: that one goes first and comes last
                    self._ask(lambda: self.filesystem.delete_file(f"{self.prefix}/{name}/{SPLITS[-1]}"))
                self._ask(lambda: self.filesystem.create_dir(f"{self.prefix}/{name}", recursive=True))
                for split in SPLITS:
                    self._ask(partial(self._upload, folder / split, f"{self.prefix}/{name}/{split}"))
        copy = self.fetch(name)
        if copy is None:
            raise ValueError(f"{self.where}/{name} was removed by someone else")
        return copy

    def remove(self, name: str) -> None:
        """Take a dataset away, if it is there."""
        if self._stat(name) is not None:
            self._ask(lambda: self.filesystem.delete_dir(f"{self.prefix}/{name}"))

    def _upload(self, source: Path, target: str) -> None:
        copy_files(str(source), target, source_filesystem=LocalFileSystem(), destination_filesystem=self.filesystem)

    def _copy(self, name: str, folder: Path) -> None:
        for split in SPLITS:
            copy_files(
                f"{self.prefix}/{name}/{split}",
                str(folder / split),
                source_filesystem=self.filesystem,
                destination_filesystem=LocalFileSystem(),
            )
            verify_split(open_split(folder / split))

    def _stamp(self, name: str) -> str | None:
        """Names the content, so that replaced data is copied again: times of object stores count whole seconds."""
        if self._stat(name) is None:
            return None
        train, test, _ = self.describe(name)
        return hashlib.sha256(json.dumps([asdict(train), asdict(test)]).encode()).hexdigest()[:16]

    def _stat(self, name: str) -> list[FileInfo] | None:
        infos = self._ask(lambda: self.filesystem.get_file_info([f"{self.prefix}/{name}/{split}" for split in SPLITS]))
        return infos if all(info.is_file for info in infos) else None

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except OSError as error:
            raise ValueError(f"data root {self.where} does not answer: {_first_line(error)}") from error

    def _forget_older(self, name: str, keep: Path) -> None:
        for folder in self.cache.folder.glob(f"{name}~*"):
            if folder != keep:
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
    old = new.with_name(new.name + "-old")
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


def _first_line(error: Exception) -> str:
    return _without_credentials(str(error).strip().splitlines()[0]) if str(error).strip() else type(error).__name__


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)
