"""Coloured surfaces that repeat: walls, floors, cloth and nets in two colours."""

from __future__ import annotations

import numpy as np

from rayctsl.data.embedded.fields import Rng, cloud, colour_pair, finish, paint, step
from rayctsl.data.embedded.textures import Texture, cell, nearest, sample, saw, tent, wave


def _bricks(rng: Rng, u: np.ndarray, v: np.ndarray, rows: float = 2.0) -> np.ndarray:
    row = np.floor(v * rows)
    column = u + 0.5 * (row % 2)
    gap = np.minimum(saw(column) * rows, saw(v * rows))
    return step(gap - 0.12, 8) * (0.55 + 0.45 * cell(rng, column, row))


def _herringbone(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    side = np.floor(u) % 2
    slanted = v * 2 + np.where(side > 0, saw(u), 1 - saw(u)) * 2
    return step(np.minimum(saw(slanted), saw(u) * 2) - 0.15, 6) * (0.5 + 0.5 * cell(rng, u, slanted))


def _basket(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    upright = (np.floor(u) + np.floor(v)) % 2
    return wave(2 * np.where(upright > 0, u, v)) * 0.8 + 0.2 * upright


def _weave(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    u, v = 1.3 * u, 1.3 * v
    over = (np.floor(u) + np.floor(v)) % 2 > 0
    return np.where(over, 1.0 - 0.8 * tent(u) ** 4, 0.55 - 0.5 * tent(v) ** 4)


def _scales(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    row = np.floor(v * 1.5)
    x, y = saw(u + 0.5 * (row % 2)) - 0.5, saw(v * 1.5)
    return saw(np.hypot(x, y) * 1.4 + 0.25)


def _hexagons(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    height = np.float32(np.sqrt(3))
    first = np.abs(np.stack([saw(u) - 0.5, (saw(v / height) - 0.5) * height]))
    second = np.abs(np.stack([saw(u + 0.5) - 0.5, (saw(v / height + 0.5) - 0.5) * height]))
    edge = [np.maximum(x, 0.5 * x + 0.5 * height * y) for x, y in (first, second)]
    return step(0.43 - np.minimum(*edge), 9)


def _arcs(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    flipped = cell(rng, u, v) < 0.5
    x, y = np.where(flipped, saw(u), 1 - saw(u)), saw(v)
    return step(0.13 - np.minimum(np.abs(np.hypot(x, y) - 0.5), np.abs(np.hypot(1 - x, 1 - y) - 0.5)), 8)


def _maze(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    x, y = np.where(cell(rng, 1.5 * u, 1.5 * v) < 0.5, saw(1.5 * u), 1 - saw(1.5 * u)), saw(1.5 * v)
    return step(0.15 - np.abs(x - y), 6)


def _knit(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.3 + 0.7 * (1 - tent(v * 1.4 + tent(u * 0.9) * 0.8) ** 2) * (1 - 0.9 * (tent(u * 1.8) > 0.8))


def _houndstooth(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    dark_u, dark_v, diagonal = saw(u) < 0.5, saw(v) < 0.5, saw(2 * (u + v)) < 0.5
    return np.where(dark_u == dark_v, dark_u, diagonal).astype(np.float32)


def _shingles(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    row = np.floor(v * 1.5)
    column = (u + cell(rng, row * 0, row)) * 1.5
    return (0.45 + 0.55 * saw(v * 1.5)) * (0.6 + 0.4 * cell(rng, column, row)) * step(saw(column) - 0.12, 8)


def _foam(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    first, second, _ = nearest(rng, u, v)
    return step(second - first - 0.15, 5)


def _pebbles(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 1 - 1.1 * nearest(rng, u, v)[0]


def _terrazzo(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    owner = nearest(rng, u, v, 26)[2]
    shade = rng.random((len(u), 26), np.float32)
    return shade[np.arange(len(u))[:, None, None], owner]


def _octagons(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    x, y = np.abs(saw(u) - 0.5), np.abs(saw(v) - 0.5)
    return step(0.68 - (x + y), 10) * step(0.46 - np.maximum(x, y), 10) + 0.5 * step(x + y - 0.76, 10)


def _argyle(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    diamond = np.abs(saw(u) - 0.5) * 2 + np.abs(saw(0.6 * v) - 0.5) * 2
    return 0.75 * step(1 - diamond, 6) + 0.25 * step(0.12 - np.abs(saw(diamond + 0.5) - 0.5), 9)


TILINGS: dict[str, Texture] = {
    "bricks": _bricks,
    "herringbone": _herringbone,
    "basket": _basket,
    "weave": _weave,
    "scales": _scales,
    "hexagons": _hexagons,
    "arcs": _arcs,
    "maze": _maze,
    "knit": _knit,
    "houndstooth": _houndstooth,
    "shingles": _shingles,
    "foam": _foam,
    "pebbles": _pebbles,
    "terrazzo": _terrazzo,
    "octagons": _octagons,
    "argyle": _argyle,
}


def make_tilings(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """Two random colours, dirt and uneven light."""
    count, size = len(labels), 32
    pattern = np.clip(sample(rng, TILINGS, labels, size, (0.4, 0.75)), 0, 1)
    ink, paper = colour_pair(rng, count, 0.25)
    light = 1 + 0.2 * cloud(rng, count, size, (1, 3, 8))
    return finish(rng, paint(pattern, ink, paper) * light[..., None], noise=0.06)
