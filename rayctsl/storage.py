"""Files under one base, which is a local folder or any pyarrow filesystem URI (`s3://bucket/prefix`).

Writes are atomic: a reader sees the old file, the new one or none. Run folders, snapshots and the registry of
initializations all keep their files through this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
import uuid
from pathlib import Path

from pyarrow import fs

TEMPORARY = ".tmp"  # how the name of a file that is being written ends


def open_regular(root: str | Path, name: str) -> int:
    """A descriptor of a regular file below a folder, reached without following a single link.

    For whoever hands files out: a link in a storage could point to anything that the process may read.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a path below a folder")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without NONBLOCK a named pipe would hold us up for ever.
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise FileNotFoundError(f"{name} is not a plain file") from None
        raise
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name} is not a plain file")
    return file


def check_free(storage: Storage, ours: str = "") -> None:
    """Refuse a folder for new files where others would be written over; the one named `ours` is no other's."""
    if storage.local and os.path.isfile(storage.root):
        raise ValueError(f"{storage} is a file; choose a new or empty folder")
    if set(storage.names()) - {ours}:
        raise ValueError(f"{storage} already has files in it; choose a new or empty folder")


def is_full(error: BaseException) -> bool:
    """Whether a disk, or the share of one that we may use, has no room left; pyarrow's errors may lack the number."""
    if not isinstance(error, OSError):
        return False
    words = ("no space left", "disk quota", "disk is full")
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or any(each in str(error).lower() for each in words)


class Storage:
    """Read, write, list and delete files by their path relative to a base."""

    def __init__(self, base: str | Path):
        text = str(base)
        self.local = "://" not in text
        if self.local:
            self._filesystem, self.root = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))
            self.base = self.root
        else:
            try:
                self._filesystem, self.root = fs.FileSystem.from_uri(text)
            except (ValueError, OSError) as error:
                raise ValueError(f"{text} is not a storage address that can be used: {error}") from None
            self.base = text.rstrip("/")

    def __str__(self) -> str:
        return self.base

    def inside(self, folder: str) -> Storage:
        """The storage of a subfolder."""
        path, question, query = self.base.partition("?")
        return Storage(f"{path.rstrip('/')}/{folder}{question}{query}")

    def write(self, name: str, data: bytes) -> None:
        target = self._path(name)
        self._filesystem.create_dir(posixpath.dirname(target), recursive=True)
        if not self.local:  # object stores publish an object only when it is complete
            self._put(target, data)
            return
        # Who is killed leaves it behind: readers of whole folders pass over names that begin with a dot.
        folder, base = posixpath.split(target)
        temporary = posixpath.join(folder, f".{base}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
        try:
            self._put(temporary, data)
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """The file's bytes; FileNotFoundError when there is none."""
        path = self._path(name)
        if self.local:
            return self._get(path)
        # An object store is asked for the length and then for so many bytes: of an object that is deleted or replaced
        # in between comes an error, or a wrong number of bytes.
        for last in (False, False, False, True):
            try:
                data = self._get(path)
                if len(data) == self._filesystem.get_file_info(path).size:
                    return data
            except FileNotFoundError:
                raise
            except OSError:
                if last:
                    raise
            if not self.exists(name):
                raise FileNotFoundError(f"{self.base}: {name} was deleted while it was read")
        raise OSError(f"{self.base}: {name} was replaced again and again while it was read")

    def exists(self, name: str = "") -> bool:
        return self._filesystem.get_file_info(self._path(name)).type != fs.FileType.NotFound

    def names(self, folder: str = "") -> list[str]:
        """Names of what lies directly in a folder, sorted; empty when there is no such folder.

        What is still being written, or was when its writer was killed, is not there.
        """
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        names = (posixpath.basename(info.path) for info in self._filesystem.get_file_info(selector))
        return sorted(name for name in names if not name.endswith(TEMPORARY))

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(name))

    def delete_folder(self, folder: str) -> None:
        self._filesystem.delete_dir(self._path(folder))

    def _get(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _put(self, path: str, data: bytes) -> None:
        with self._filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def _path(self, name: str) -> str:
        return posixpath.join(self.root, name) if name else self.root
