"""DMLab frames: TFRecord files of encoded pictures with a label, read without TensorFlow.

A record is length (8 bytes), its sum (4), the content, and the content's sum (4). The content is a protocol-buffer
message `Example`: features, a map from a name to a list of bytes or of whole numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import MAX_MEMBER_BYTES, unpack

CLASS_NAMES = tuple(
    f"{distance}, {reward} reward" for reward in ("good", "bad") for distance in ("near", "far", "farther")
)
SPLITS = {"train": "train", "validation": "train", "test": "test"}
BYTES, NUMBERS = 1, 3  # fields of a protocol buffer's Feature


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    unpack(folder / entry.files[0].name, scratch)
    files = {word: sorted(scratch.rglob(f"dmlab-{word}.tfrecord*")) for word in SPLITS}
    if missing := [word for word, found in files.items() if not found]:
        raise ValueError(f"{folder / entry.files[0].name} has no dmlab-{missing[0]}.tfrecord")
    listing, names = Listing(), {}
    for word, found in files.items():
        for file in found:
            for number, example in enumerate(examples(file)):
                names[file, number] = f"{file.name}[{number}]"
                listing.add(SPLITS[word], names[file, number], int(example["label"]))
    return listing.dataset(CLASS_NAMES, _pictures(files, names, listing))


def _pictures(files: dict[str, list[Path]], names: dict[tuple[Path, int], str], listing: Listing) -> Iterator[Picture]:
    for file in (file for found in files.values() for file in found):
        for number, example in enumerate(examples(file)):
            image = example["image"]
            assert isinstance(image, bytes)
            yield listing.pick(names[file, number], image)


def examples(file: Path) -> Iterator[dict[str, bytes | int]]:
    """Every example's features, the first value of each."""
    with file.open("rb") as stream:
        while head := stream.read(12):
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else MAX_MEMBER_BYTES + 1
            content = stream.read(length + 4) if length <= MAX_MEMBER_BYTES else b""
            if len(content) != length + 4:
                raise ValueError(f"{file.name} is damaged or cut off; remove the archive and try again")
            example = dict(_features(content[:length]))
            if not {"image", "label"} <= set(example):
                raise ValueError(f"{file.name} has an example without image or label")
            yield example


def _features(message: bytes) -> Iterator[tuple[str, bytes | int]]:
    for _, features in _fields(message):
        for _, pair in _fields(_content(features)):
            name, feature = (_content(value) for _, value in _fields(_content(pair)))
            for kind, values in _fields(feature):
                if kind == BYTES:
                    yield name.decode(), _content(next(_fields(_content(values)))[1])
                elif kind == NUMBERS:
                    _, first = next(_fields(_content(values)))
                    yield name.decode(), first if isinstance(first, int) else _varint(first, 0)[0]


def _content(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a record does not hold an Example")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message: number and content, for the two ways of writing that an Example uses."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
        elif key & 7 == 2:
            size, place = _varint(message, place)
            yield key >> 3, message[place : place + size]
            place += size
        else:
            raise ValueError("a record does not hold an Example")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message):
            raise ValueError("a record does not hold an Example")
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
