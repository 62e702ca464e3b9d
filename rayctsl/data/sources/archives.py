"""Zip and tar archives from outside, read with suspicion.

Names that leave the folder, links that point out of it, bombs and cut-off files are refused by name. `members` reads
an archive without unpacking it; `unpack` writes its files below a folder.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import lzma
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from rayctsl.words import one_line

MAX_MEMBER_BYTES = 2**26  # of a file that is read into memory: an image or a list
MAX_RATIO = 100  # unpacked to packed; photographs hardly shrink
HARMLESS_BYTES = 2**26  # so much may come out of however small an archive
DAMAGED = (  # what the readers of the standard library raise over foreign bytes
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, NotImplementedError),
)


class RefusedError(ValueError):
    """An archive that is hostile or broken, named."""


@dataclass(frozen=True)
class Member:
    """One file of an archive, to be read before the next one is asked for."""

    archive: Path
    name: str
    size: int
    open: Callable[[], IO[bytes]]

    def read(self) -> bytes:
        if self.size > MAX_MEMBER_BYTES:
            raise RefusedError(f"{self.archive} is refused: '{self.name}' has {self.size / 2**20:,.0f} MiB")
        with refusing_damage(self.archive), self.open() as stream:
            content = stream.read()
            if len(content) != self.size:
                raise EOFError(f"'{self.name}' ends early")
            return content

    def write(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with refusing_damage(self.archive), self.open() as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 2**20)
            if out.tell() != self.size:
                raise EOFError(f"'{self.name}' ends early")


def members(path: Path) -> Iterator[Member]:
    """The files of a zip or tar archive in their order, with safe relative names."""
    if not path.is_file():
        raise RefusedError(f"{path} does not exist")
    with refusing_damage(path):
        if zipfile.is_zipfile(path):
            yield from _zip_members(path)
        else:
            with _decompressed(path) as stream:
                yield from _tar_members(path, stream)


def inner_members(outer: Member) -> Iterator[Member]:
    """The files of a tar that is itself a file of an uncompressed tar."""
    with refusing_damage(outer.archive), outer.open() as stream:
        yield from _tar_members(outer.archive, stream)


def unpack(path: Path, folder: Path) -> None:
    """Write every file of an archive below `folder`."""
    for member in members(path):
        member.write(folder / member.name)


def unpack_gzip(path: Path, target: Path) -> None:
    """Write the one file that a .gz holds."""
    with refusing_damage(path), _decompressed(path) as source, target.open("wb") as out:
        shutil.copyfileobj(source, out, 2**20)


@contextlib.contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Turn the many errors of broken archives into the one sentence."""
    try:
        yield
    except RefusedError:
        raise
    except (*DAMAGED, OSError) as error:
        # Nonsense in an archive asks for impossible offsets or is no gzip; a full disk is not the archive's fault.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = one_line(error)
        raise RefusedError(f"{path} is damaged or cut off ({reason}); remove it and try again") from error


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        # The directory at the end announces every size, and reading stops there.
        _refuse_bomb(path, sum(info.file_size for info in infos))
        for info in infos:
            name = _safe_name(path, info.filename)
            if info.flag_bits & 1:
                raise RefusedError(f"{path} is refused: '{name}' is encrypted")
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                _refuse_link_out(path, name, archive.read(info).decode(), PurePosixPath(name).parent)
            elif not info.is_dir():
                yield Member(path, name, info.file_size, partial(archive.open, info))


def _tar_members(path: Path, stream: IO[bytes]) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for info in archive:
            name = _safe_name(path, info.name)
            if info.issym() or info.islnk():
                base = PurePosixPath(name).parent if info.issym() else PurePosixPath()
                _refuse_link_out(path, name, info.linkname, base)
            elif info.isfile():
                _refuse_bomb(path, info.offset_data + info.size)
                yield Member(path, name, info.size, partial(_opened, archive, info))
            elif not info.isdir():
                raise RefusedError(f"{path} is refused: '{name}' is neither a file nor a folder")
        _refuse_early_end(archive, stream)


def _refuse_early_end(archive: tarfile.TarFile, stream: IO[bytes]) -> None:
    """tarfile takes half a header for the end; the end is a block of zeros, or nothing at all."""
    stream.seek(archive.offset)
    if stream.read(tarfile.BLOCKSIZE) not in (bytes(tarfile.BLOCKSIZE), b""):
        raise EOFError("no end mark")
    while stream.read(2**16):  # a compressed file has its own sum at the very end
        pass


def _opened(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(info)
    assert stream is not None  # it is a regular file
    return stream


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(6)
    packer = next((module for magic, module in _COMPRESSIONS.items() if start.startswith(magic)), None)
    return path.open("rb") if packer is None else cast(IO[bytes], _Guarded(packer.open(path), path))


_COMPRESSIONS = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}  # by the first bytes


class _Guarded:
    """A decompressed stream that refuses to deliver more than a sane archive of its size holds."""

    def __init__(self, stream: IO[bytes], path: Path):
        self._stream, self._path = stream, path

    def read(self, count: int = -1) -> bytes:
        if count > 0:
            _refuse_bomb(self._path, self._stream.tell() + count)
        return self._stream.read(count)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0:
            _refuse_bomb(self._path, offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def __enter__(self) -> _Guarded:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()


def _safe_name(archive: Path, name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name) or "\0" in name:
        raise RefusedError(f"{archive} is refused: '{name}' would leave its folder")
    return str(path)


def _refuse_link_out(archive: Path, name: str, target: str, base: PurePosixPath) -> None:
    """Links are never followed; one that points out of the archive marks it as hostile."""
    depth = len(base.parts)
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0 or part == "/":
            raise RefusedError(f"{archive} is refused: the link '{name}' points out of it")


def _refuse_bomb(archive: Path, unpacked: int) -> None:
    if unpacked > HARMLESS_BYTES and unpacked > MAX_RATIO * archive.stat().st_size:
        raise RefusedError(f"{archive} is refused: it would unpack to more than {MAX_RATIO} times its size")
