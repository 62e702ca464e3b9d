"""A prefix of a pyarrow filesystem such as S3, with a verified copy per node."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem, copy_files

from rayctsl.data.copying import copy_while_moving
from rayctsl.data.local_root import DOWNLOADS, SPLITS, Description, Keep, LocalRoot, Make, always
from rayctsl.data.store import open_split, read_info, verify_split

Answer = TypeVar("Answer")


def cache_folder() -> Path:
    """Where this node keeps its copies of remote data."""
    chosen = os.environ.get("RAYCTSL_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "rayctsl" / "cache"


class RemoteRoot:
    """A prefix of a pyarrow filesystem; datasets are copied once to this node's cache and mapped from there."""

    def __init__(self, uri: str):
        self.where = without_credentials(uri).split("?")[0]
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
            copy_while_moving(partial(self.filesystem.open_input_file, f"{self.prefix}/{name}/{split}"), folder / split)
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


def _first_line(error: Exception) -> str:
    return without_credentials(str(error).strip().splitlines()[0]) if str(error).strip() else type(error).__name__


def without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)
