"""The embedded suite: datasets that need no download, made by this program from nothing but a name.

Sources are for meta-training, targets are held out; they share strokes, edges, colours and textures, but no class.
`make_dataset` writes the two Arrow files of one dataset; the same name gives the same bytes in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rayctsl.data.embedded.drawings import FRACTAL_SEEDS, make_fractals, make_plants, make_sketches
from rayctsl.data.embedded.fields import Rng
from rayctsl.data.embedded.glyphs import ALPHABETS
from rayctsl.data.embedded.shapes import FLAGS, SHAPES, make_flags, make_shapes
from rayctsl.data.embedded.templates import PLANTS, SKETCHES
from rayctsl.data.embedded.textures import QUILTS, TEXTURES, make_quilts, make_textures
from rayctsl.data.embedded.tilings import TILINGS, make_tilings
from rayctsl.data.names import EMBEDDED_NAMES
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.words import suggest

EMBEDDED_VERSION = 2  # raise it with every change that alters a single pixel
STREAMS = 1  # a new family of random streams redraws every dataset
SOURCE = f"made by rayctsl (embedded suite, version {EMBEDDED_VERSION})"
LICENCE = "CC0-1.0; letters and symbols are drawn with the DejaVu, STIX and Computer Modern fonts of matplotlib"


@dataclass(frozen=True)
class EmbeddedDataset:
    """One dataset of the suite; `make` draws one uint8 image [H, W, C] for each label it is given."""

    name: str
    role: Literal["source", "target"]
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    num_train: int
    num_test: int
    description: str
    make: Callable[[Rng, np.ndarray], np.ndarray]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


def _glyphs(
    name: str, role: Literal["source", "target"], channels: int, num_train: int, num_test: int, description: str
) -> EmbeddedDataset:
    alphabet = ALPHABETS[name]
    shape = (alphabet.size, alphabet.size, channels)
    return EmbeddedDataset(name, role, shape, alphabet.class_names, num_train, num_test, description, alphabet.make)


GREY, COLOUR = (32, 32, 1), (32, 32, 3)
FRACTALS = tuple(f"attractor {number}" for number, _ in enumerate(FRACTAL_SEEDS, 1))

SUITE = (
    _glyphs("latin", "source", 1, 3700, 740, "Latin letters of 19 fonts, written with a trembling white pen"),
    _glyphs("greek", "source", 3, 3000, 600, "Greek letters painted on signs in any two colours"),
    _glyphs("cyrillic", "source", 1, 3600, 720, "Cyrillic letters on stained, ruled and badly copied paper"),
    _glyphs("syllabics", "source", 1, 3000, 750, "Canadian syllabics in chalk, told apart by turns and dots"),
    _glyphs("operators", "source", 3, 5000, 1000, "Operators and arrows, filled or outlined, on coloured texture"),
    _glyphs("dominoes", "source", 1, 2450, 735, "Domino tiles on a board: counting pips"),
    EmbeddedDataset(
        "shapes", "source", COLOUR, tuple(SHAPES), 3080, 660, "Coloured shapes, turned, half hidden", make_shapes
    ),
    EmbeddedDataset(
        "textures", "source", GREY, tuple(TEXTURES), 3080, 660, "Grey textures of any direction", make_textures
    ),
    EmbeddedDataset(
        "quilts", "source", COLOUR, QUILTS, 3000, 600, "Two hues and a motif: colour is part of the class", make_quilts
    ),
    EmbeddedDataset(
        "flags", "source", COLOUR, tuple(FLAGS), 3000, 600, "Waving flags by layout, in any colours", make_flags
    ),
    EmbeddedDataset(
        "fractals", "source", GREY, FRACTALS, 2400, 600, "Attractors of random affine maps, as dust", make_fractals
    ),
    EmbeddedDataset(
        "sketches", "source", (64, 64, 1), tuple(SKETCHES), 2400, 600, "Pencil sketches of objects", make_sketches
    ),
    _glyphs("georgian", "target", 1, 3300, 990, "Georgian letters, written with a trembling white pen"),
    _glyphs("digits", "target", 3, 3000, 1000, "House numbers in any two colours"),
    _glyphs("symbols", "target", 3, 3180, 848, "Pictograms on coloured badges before a busy background"),
    _glyphs("armenian", "target", 1, 2800, 840, "Armenian capitals carved in stone, lit from any side"),
    EmbeddedDataset(
        "tilings", "target", COLOUR, tuple(TILINGS), 3200, 960, "Tiles, weaves and walls in two colours", make_tilings
    ),
    EmbeddedDataset(
        "plants", "target", (48, 48, 3), tuple(PLANTS), 2800, 840, "Plants grown by rewriting rules", make_plants
    ),
)

EMBEDDED: dict[str, EmbeddedDataset] = {dataset.name: dataset for dataset in SUITE}
SOURCES: tuple[str, ...] = tuple(dataset.name for dataset in SUITE if dataset.role == "source")
TARGETS: tuple[str, ...] = tuple(dataset.name for dataset in SUITE if dataset.role == "target")
assert (*SOURCES, *TARGETS) == EMBEDDED_NAMES


def draw_split(dataset: EmbeddedDataset, split: Literal["train", "test"]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one split: all classes equally often, in random order, independent of the other split."""
    digest = hashlib.sha256(f"{STREAMS}/{dataset.name}/{split}".encode()).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    count = dataset.num_train if split == "train" else dataset.num_test
    labels = rng.permutation(np.arange(count, dtype=np.int64) % dataset.num_classes)
    return dataset.make(rng, labels), labels


def make_dataset(name: str, folder: Path) -> None:
    """Write folder/train.arrow and folder/test.arrow of an embedded dataset."""
    if name not in EMBEDDED:
        raise ValueError(f"embedded dataset {name!r} is unknown{suggest(name, EMBEDDED)}")
    dataset = EMBEDDED[name]
    drawn = {split: draw_split(dataset, split) for split in ("train", "test")}
    for split, (images, labels) in drawn.items():
        info = SplitInfo(name, split, dataset.shape, dataset.class_names, source=SOURCE, licence=LICENCE)
        write_split(Path(folder) / f"{split}.arrow", images, labels, info)
