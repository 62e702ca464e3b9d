"""One dataset split as one Arrow IPC file of uint8 images.

A file is memory-mapped, so every learner of a node shares one copy in the page cache and opening costs nothing.
Its schema metadata says everything about the split; `images` and `labels` are numpy views into the map.
Two more columns, `crc32` and `name`, are read only to say which images of a damaged file are damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayctsl.words import one_line

SCHEMA_VERSION = 1
METADATA_KEY = b"rayctsl"
STATISTICS_BYTES = 2**24
CHUNK_BYTES = 2**29  # one record batch; nearly every split is a single one, which gathers fastest


@dataclass(frozen=True)
class SplitInfo:
    """What is known about one split.

    Example: SplitInfo("digits", "train", (28, 28, 1), ("zero", "one"), source="made", licence="CC0")
    """

    name: str
    split: str  # train | test
    shape: tuple[int, int, int]  # height, width, channels (1 or 3)
    class_names: tuple[str, ...]
    source: str = ""
    licence: str = ""
    count: int = 0
    checksum: str = ""  # sha256 over labels and pixels, see `checksum_of`
    mean: tuple[float, ...] = ()  # per channel, in 0..255
    std: tuple[float, ...] = ()
    flip: bool | None = None  # whether a mirror image keeps its class; None: the catalog knows, else yes
    version: int = SCHEMA_VERSION

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


class Split:
    """An opened split: `info`, `labels` [N] int64, and images by index."""

    def __init__(self, path: Path, info: SplitInfo, chunks: list[np.ndarray], labels: np.ndarray):
        self.path, self.info, self.labels = path, info, labels
        self._chunks = chunks
        self._starts = np.cumsum([0] + [len(chunk) for chunk in chunks])

    def __len__(self) -> int:
        return self.info.count

    def __reduce__(self) -> tuple:
        return open_split, (self.path,)  # another process maps the same file

    def images(self, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Gather uint8 images [len(indices), H, W, C]."""
        if len(self._chunks) == 1:
            return np.take(self._chunks[0], indices, axis=0, out=out, mode="clip" if out is not None else "raise")
        if out is None:
            out = np.empty((len(indices), *self.info.shape), np.uint8)
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(owner):
            rows = np.flatnonzero(owner == number)
            out[rows] = self._chunks[number][indices[rows] - self._starts[number]]
        return out

    def chunks(self) -> Iterator[np.ndarray]:
        """All images in order, a memory-mapped piece at a time."""
        yield from self._chunks


def checksum_of(labels: np.ndarray, image_chunks: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(labels, np.int64).tobytes())
    for chunk in image_chunks:
        digest.update(np.ascontiguousarray(chunk).data)
    return digest.hexdigest()


def write_split(
    path: Path, images: np.ndarray, labels: np.ndarray, info: SplitInfo, names: Sequence[str] | None = None
) -> SplitInfo:
    """Write one split atomically; count, checksum, mean and std of `info` are filled in.

    Args:
        images: uint8 [N, H, W, C]; may be a memory map larger than memory.
        names: what to call each image when it is damaged, e.g. its file name; else its number.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != tuple(info.shape):
        raise ValueError(f"{info.name}/{info.split}: images must be uint8 [N, {info.shape}], got {images.shape}")
    if len(images) != len(labels) or len(images) == 0:
        raise ValueError(f"{info.name}/{info.split}: {len(images)} images but {len(labels)} labels")
    if names is not None and len(names) != len(images):
        raise ValueError(f"{info.name}/{info.split}: {len(images)} images but {len(names)} names")
    if labels.min() < 0 or labels.max() >= info.num_classes:
        raise ValueError(f"{info.name}/{info.split}: labels must lie in 0..{info.num_classes - 1}")

    size = int(np.prod(info.shape))
    rows = max(1, CHUNK_BYTES // size)

    def pieces() -> Iterator[np.ndarray]:
        for start in range(0, len(images), rows):
            yield np.ascontiguousarray(images[start : start + rows])

    mean, std = _channel_statistics(pieces(), len(images))
    info = replace(info, count=len(images), checksum=checksum_of(labels, pieces()), mean=mean, std=std)
    schema = pa.schema(
        [("image", pa.binary(size)), ("label", pa.int64()), ("crc32", pa.uint32()), ("name", pa.string())],
        metadata={METADATA_KEY: json.dumps(asdict(info)).encode()},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            start = 0
            for piece in pieces():
                column = pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(size), len(piece), [None, pa.py_buffer(piece.reshape(-1))]
                )
                stop = start + len(piece)
                label = pa.array(np.asarray(labels[start:stop], np.int64))
                called = names[start:stop] if names is not None else [str(number) for number in range(start, stop)]
                columns = [column, label, pa.array(_image_crcs(piece)), pa.array(called, pa.string())]
                writer.write_batch(pa.record_batch(columns, schema=schema))
                start = stop
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return info


def open_split(path: Path) -> Split:
    """Memory-map a split written by `write_split`."""
    try:
        mapped = pa.memory_map(str(path))
        info = read_info(mapped, str(path))
        reader = pa.ipc.open_file(mapped)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        chunks = [
            np.frombuffer(batch.column(0).buffers()[1], np.uint8).reshape(len(batch), *info.shape) for batch in batches
        ]
        labels = np.concatenate([_numbers(batch.column(1), np.int64) for batch in batches])
    except UnreadableError:
        raise
    except (pa.ArrowInvalid, OSError, TypeError, ValueError, IndexError) as error:
        raise UnreadableError(path, error) from error
    return Split(path, info, chunks, labels)


def _numbers(column: pa.Array, kind: type[np.generic]) -> np.ndarray:
    """A column without gaps as numpy sees it; pyarrow's own way there loads pandas."""
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def read_info(file: pa.NativeFile, path: str) -> SplitInfo:
    """What a split says of itself; reads only the beginning and the end of the file."""
    try:
        raw = json.loads(pa.ipc.open_file(file).schema.metadata[METADATA_KEY])
        version = raw["version"]
        if version == SCHEMA_VERSION:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
            return SplitInfo(**fields)
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(path, error) from error
    raise OtherVersionError(path, version)


class UnreadableError(ValueError):
    """A file that is no dataset, or no longer one."""

    def __init__(self, path: Path | str, error: Exception):
        super().__init__(f"{path} is not a readable dataset file ({one_line(error)})")


class OtherVersionError(UnreadableError):
    """A dataset that is whole, in a format that this program does not know."""

    def __init__(self, path: str, version: object):
        ValueError.__init__(self, f"{path} has format version {version}, this program reads {SCHEMA_VERSION}")


def verify_split(split: Split) -> None:
    """Raise ValueError when pixels or labels are not those that were written."""
    if checksum_of(split.labels, split.chunks()) != split.info.checksum:
        raise ValueError(f"{split.path} is damaged: its checksum does not match; prepare the dataset again")


def damaged_images(split: Split) -> list[str]:
    """The names of the images whose pixels are not those that were written."""
    reader = pa.ipc.open_file(pa.memory_map(str(split.path)))
    damaged: list[str] = []
    for number, chunk in enumerate(split.chunks()):
        batch = reader.get_batch(number)
        wrong = np.flatnonzero(_image_crcs(chunk) != _numbers(batch.column(2), np.uint32))
        damaged += batch.column(3).take(pa.array(wrong)).to_pylist()
    return damaged


def _image_crcs(images: np.ndarray) -> np.ndarray:
    return np.fromiter((zlib.crc32(image.data) for image in images), np.uint32, len(images))


def _channel_statistics(pieces: Iterable[np.ndarray], count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    total, squares, pixels = np.zeros(1), np.zeros(1), 0
    levels = np.arange(256, dtype=np.float64)
    for piece in pieces:
        # A histogram per channel gives exact sums whatever the number of images. Counting widens every pixel to
        # eight bytes, hence a few images at a time.
        rows = max(1, STATISTICS_BYTES // int(np.prod(piece.shape[1:])))
        for start in range(0, len(piece), rows):
            part = piece[start : start + rows]
            counts = np.stack([np.bincount(part[..., c].reshape(-1), minlength=256) for c in range(part.shape[-1])])
            total = total + counts @ levels
            squares = squares + counts @ levels**2
            pixels += part.shape[0] * part.shape[1] * part.shape[2]
    mean = total / pixels
    std = np.sqrt(np.maximum(squares / pixels - mean**2, 1e-12))
    return tuple(float(m) for m in mean), tuple(max(float(s), 1.0) for s in std)
