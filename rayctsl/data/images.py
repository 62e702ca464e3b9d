"""Encoded images to uint8 squares: decoded, converted and resized with antialiasing in a pool of processes.

Sources yield `Picture`s in whatever order their archive has; `decode_into` puts each at its row of its split.
Images that cannot be read are collected and refused together, by name.
"""

from __future__ import annotations

import io
import os
import signal
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from rayctsl.data.raw import Picture
from rayctsl.processes import HelperContext, die_with_parent, signals_held_back
from rayctsl.progress import Progress
from rayctsl.words import one_line

CHUNK = 64  # pictures handed to a process at once
MAX_PIXELS = 100_000_000
NAMED_AT_MOST = 10
UNREADABLE = (  # what Pillow's decoders raise over foreign bytes
    *(OSError, ValueError, SyntaxError, EOFError, MemoryError, TypeError, LookupError, ArithmeticError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)
GREY_MODES = ("1", "L", "LA", "I;16", "I;16B", "I;16L")
TURNS = {  # what is to be done to a picture, by its camera's word for how it was held
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(content: bytes | Path | np.ndarray, size: tuple[int, int], channels: int) -> np.ndarray:
    """One image as uint8 [height, width, channels]: upright, on white, the whole picture squeezed into `size`."""
    height, width = size
    mode = "L" if channels == 1 else "RGB"
    if isinstance(content, np.ndarray):
        content = content[..., 0] if content.ndim == 3 and content.shape[2] == 1 else content
        image = Image.fromarray(np.ascontiguousarray(content))
    else:
        image = Image.open(io.BytesIO(content) if isinstance(content, bytes) else content)
    with image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are too many")
        plain = _on_white(_eight_bits(image), mode)
        if (turn := _turn(image)) is not None:
            plain = plain.transpose(turn)
        if plain.size != (width, height):
            plain = plain.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(plain, np.uint8).reshape(height, width, channels)


def why_unreadable(error: Exception) -> str:
    """What Pillow says of a file, without its path or buffer, which the reader knows or has no use for."""
    foreign = "cannot identify image file"
    return foreign if isinstance(error, UnidentifiedImageError) else one_line(error)


def is_grey(content: bytes | Path) -> bool:
    """Whether an encoded image has no colour channels; only its header is read."""
    try:
        with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
            return image.mode in GREY_MODES
    except UNREADABLE:
        return True  # unreadable: says nothing, and is refused by name when it is decoded


def short_side(path: Path) -> int | None:
    """The shorter side of a picture in pixels; only its header is read. None when it is unreadable."""
    try:
        with Image.open(path) as image:
            return min(image.size)
    except UNREADABLE:
        return None


def decode_into(
    arrays: Mapping[str, np.ndarray], pictures: Iterable[Picture], title: str, workers: int | None = None
) -> None:
    """Decode every picture into its row of its split's array [N, H, W, C]; refuse unreadable ones by name.

    Args:
        workers: processes; default one per available core, 1 decodes in this process.
    """
    damaged: list[str] = []
    with Progress(sum(len(array) for array in arrays.values()), title, unit="image") as progress:
        encoded = _copy_finished(pictures, arrays, progress)
        for rows, images, errors in _decoded_chunks(encoded, arrays, workers or len(os.sched_getaffinity(0))):
            for (split, row), image in zip(rows, images, strict=True):
                arrays[split][row] = image
            damaged += errors
            progress.advance(len(rows) + len(errors))
    if damaged:
        more = f" and {len(damaged) - NAMED_AT_MOST} more" if len(damaged) > NAMED_AT_MOST else ""
        what = "1 image" if len(damaged) == 1 else f"{len(damaged)} images"
        raise ValueError(f"{title}: {what} cannot be read: {', '.join(damaged[:NAMED_AT_MOST])}{more}")


def _copy_finished(
    pictures: Iterable[Picture], arrays: Mapping[str, np.ndarray], progress: Progress
) -> Iterator[Picture]:
    """Put arrays of the right shape straight into their rows; pass on what needs work."""
    for picture in pictures:
        if isinstance(picture.content, np.ndarray) and picture.content.shape == arrays[picture.split].shape[1:]:
            arrays[picture.split][picture.row] = picture.content
            progress.advance(1)
        else:
            yield picture


Decoded = tuple[list[tuple[str, int]], list[np.ndarray], list[str]]


def _decoded_chunks(pictures: Iterable[Picture], arrays: Mapping[str, np.ndarray], workers: int) -> Iterator[Decoded]:
    shapes = {split: array.shape[1:] for split, array in arrays.items()}
    stream = iter(pictures)
    if workers <= 1:
        while chunk := list(islice(stream, CHUNK)):
            yield _decode_chunk(chunk, shapes)
        return
    pool = ProcessPoolExecutor(workers, HelperContext(), initializer=die_with_parent)
    try:
        waiting: set[Future[Decoded]] = set()
        while True:
            # A bounded number of chunks in flight: archives are larger than memory.
            while len(waiting) < 3 * workers and (chunk := list(islice(stream, CHUNK))):
                with signals_held_back(signal.SIGINT):
                    waiting.add(pool.submit(_decode_chunk, chunk, shapes))
            if not waiting:
                return
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decode_chunk(chunk: list[Picture], shapes: Mapping[str, tuple[int, ...]]) -> Decoded:
    rows, images, errors = [], [], []
    for picture in chunk:
        height, width, channels = shapes[picture.split]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd metadata in old photographs
                image = decode(picture.content, (height, width), channels)
        except UNREADABLE as error:
            errors.append(f"{picture.name} ({why_unreadable(error)})")
            continue
        rows.append((picture.split, picture.row))
        images.append(image)
    return rows, images, errors


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        values = np.asarray(image)
        transparent = values == image.info.get("transparency")
        return Image.fromarray(np.where(transparent, 255, values >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels are not supported")
    return image


def _on_white(image: Image.Image, mode: str) -> Image.Image:
    """As a page or a viewer shows it: below what is transparent, files mostly hold black, which ink is as well."""
    if image.mode not in ("RGBA", "RGBa", "LA", "PA") and "transparency" not in image.info:
        return image.convert(mode)
    seen = image.convert("RGBA")
    plain = Image.new(mode, image.size, "white")
    plain.paste(seen.convert(mode), mask=seen)
    return plain


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What sets a decoded picture upright; decoding has done it for formats that need no asking."""
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except UNREADABLE:
        return None  # the pixels were read, whatever else the file says
