"""Archives that somebody might send who means no good, or does not know better; each with the sentence it deserves."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

Files = dict[str, bytes]


@dataclass(frozen=True)
class Hostile:
    """An archive and a pattern of the sentence. Example: Hostile(lambda: b"hello", "damaged or cut off")"""

    make: Callable[[], bytes]
    sentence: str


def picture(side: int = 8) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(out, "PNG")
    return out.getvalue()


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def good() -> Files:
    return {f"{kind}/{number}.png": picture() for kind in ("cat", "dog") for number in range(3)}


def huge_header() -> bytes:
    """A PNG that says it has 10^9 pixels."""
    head = bytearray(picture())
    head[16:24] = (31623).to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(bytes(head[12:29])).to_bytes(4, "big")
    return bytes(head)


def linked(kind: bytes, target: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        link = tarfile.TarInfo("cat/passwd.png")
        link.type, link.linkname = kind, target
        archive.addfile(link)
    return out.getvalue()


def linked_in_a_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("cat/passwd.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "../../../etc/passwd")
    return out.getvalue()


def nested(depth: int = 4) -> bytes:
    """Zips in a zip, of which the innermost is mostly nothing."""
    inner = zipped({"zeros.png": bytes(2**22)})
    for _ in range(depth):
        inner = zipped({f"{number}.zip": inner for number in range(4)})
    return inner


def many_files(count: int) -> bytes:
    """Empty files in a zip, written by hand: the library's own way takes minutes for a million."""
    files, listing, place = [], [], 0
    for number in range(count):
        name = b"cat/%d.png" % number
        common = struct.pack("<5H3I2H", 20, 0, 0, 0, 0x21, 0, 0, 0, len(name), 0)
        files.append(b"PK\3\4" + common + name)
        listing.append(b"PK\1\2\x14\0" + common + struct.pack("<3H2I", 0, 0, 0, 0, place) + name)
        place += len(files[-1])
    directory = b"".join(listing)
    sizes = (count, count, len(directory), place)
    large = b"PK\6\6" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, *sizes)
    finder = b"PK\6\7" + struct.pack("<IQI", 0, place + len(directory), 1)
    end = b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return b"".join(files) + directory + large + finder + end


def tar_of_many(count: int) -> bytes:
    """As many in a tar, which has no list of them."""
    empty = bytearray(tarfile.TarInfo("x").tobuf())
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
        for number in range(count):
            header = empty.copy()
            name = b"cat/%d.png" % number
            header[: len(name)] = name
            header[148:156] = b" " * 8
            header[148:155] = b"%06o\0" % sum(header)
            packed.write(header)
        packed.write(bytes(1024))
    return out.getvalue()


def noise(count: int, size: int) -> bytes:
    return zipped({f"cat/{number}.png": np.random.default_rng(number).bytes(size) for number in range(count)})


def hostile(*, files: int, most_files: int, unpacked: int) -> dict[str, Hostile]:
    """Every kind by name.

    Args:
        files: how many the archives of too many have.
        most_files: how many the importer takes.
        unpacked: bytes that it unpacks at most.
    """
    mib = unpacked // 2**20
    return {
        "zip slip": Hostile(lambda: zipped({"../../out.png": picture()}), "would leave its folder"),
        "absolute name": Hostile(lambda: zipped({"/etc/out.png": picture()}), "would leave its folder"),
        "backslashes": Hostile(lambda: zipped({"..\\..\\out.png": picture()}), "would leave its folder"),
        "symlink": Hostile(lambda: linked(tarfile.SYMTYPE, "/etc/passwd"), "points out of it"),
        "hard link": Hostile(lambda: linked(tarfile.LNKTYPE, "../../etc/passwd"), "points out of it"),
        "symlink in a zip": Hostile(linked_in_a_zip, "points out of it"),
        "device": Hostile(lambda: linked(tarfile.CHRTYPE, ""), "neither a file nor a folder"),
        "bomb": Hostile(lambda: zipped({"cat/a.png": bytes(200 * 2**20)}), "more than 100 times its size"),
        "too much": Hostile(lambda: noise(8, unpacked // 6), f"more than {mib:,} MiB"),
        "nested bomb": Hostile(nested, "no class folders|100 times its size"),
        "many files": Hostile(lambda: many_files(files), f"more than {most_files:,} files"),
        "many files in a tar": Hostile(
            lambda: tar_of_many(files), f"more than {most_files:,} files|100 times its size"
        ),
        "10^9 pixels": Hostile(
            lambda: zipped({**good(), "cat/big.png": huge_header()}), r"1 image cannot be read: .*cat/big\.png"
        ),
        "wrong extension": Hostile(
            lambda: zipped({**good(), "dog/b.jpg": b"GIF89a no"}), r"1 image cannot be read: .*dog/b\.jpg"
        ),
        "corrupt among good": Hostile(
            lambda: zipped({**good(), "dog/cut.png": picture(64)[:90]}), r"1 image cannot be read: .*dog/cut\.png"
        ),
        "names that differ in case": Hostile(
            lambda: zipped({**good(), "Cat/9.png": picture()}), "differ only in capital letters: 'cat' and 'Cat'"
        ),
        "no class": Hostile(lambda: zipped({"readme.txt": b"hello"}), "no class folders"),
        "one class": Hostile(lambda: zipped({f"cat/{i}.png": picture() for i in range(4)}), "only one class"),
        "no archive": Hostile(lambda: b"hello" * 100, "damaged or cut off"),
        "cut archive": Hostile(lambda: zipped(good())[:200], "damaged or cut off"),
    }
