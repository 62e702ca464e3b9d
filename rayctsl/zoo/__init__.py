"""Small initializations that come with the package: `zoo/glyphs`, `zoo/surfaces`, `zoo/mixed`.

Each is a folder as `registry` writes it, made on the embedded datasets by `make zoo` from `configs/zoo/<name>.yaml`.
"""

from __future__ import annotations

from pathlib import Path

from rayctsl.words import suggest

PREFIX = "zoo/"
ZOO = {
    "glyphs": "letters, signs and pips",
    "surfaces": "shapes, textures, colours and lines",
    "mixed": "some of both",
}


def zoo_folder(name: str) -> Path:
    """Where `zoo/<name>` lies; ValueError when there is no such."""
    short = name.removeprefix(PREFIX)
    if short not in ZOO:
        raise ValueError(f"the zoo has no {short!r}{suggest(short, ZOO)}")
    return Path(__file__).parent / short
