"""Surfaces without an object: grey textures and two-colour quilts (`tilings` has more).

A texture is a function of the plane; every image looks at it through its own rotation, zoom and bend.
Each function takes (rng, u, v) with u, v [N, H, W] in units of the pattern's own period and returns about 0..1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rayctsl.data.embedded.fields import (
    Rng,
    by_class,
    chance,
    cloud,
    finish,
    hsv,
    paint,
    per_image,
    random_grid,
    shrink,
    sign,
    smooth_noise,
    step,
    uniform,
)

Texture = Callable[[Rng, np.ndarray, np.ndarray], np.ndarray]
TURN = 2 * np.pi


def wave(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.sin(TURN * x)


def saw(x: np.ndarray) -> np.ndarray:
    return x - np.floor(x)


def tent(x: np.ndarray) -> np.ndarray:
    return np.abs(2 * saw(x) - 1)


def _radius(rng: Rng, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = uniform(rng, -1, 1, 2, len(u), 1, 1)
    return np.hypot(u - centre[0], v - centre[1]), np.arctan2(v - centre[1], u - centre[0])


def nearest(rng: Rng, u: np.ndarray, v: np.ndarray, seeds: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance to the nearest and the second nearest of some random points, and the nearest one's number."""
    places = uniform(rng, -3.2, 3.2, len(u), seeds, 2)
    first, second = np.full(u.shape, 99, np.float32), np.full(u.shape, 99, np.float32)
    owner = np.zeros(u.shape, np.int64)
    for number in range(seeds):
        distance = np.hypot(u - per_image(places[:, number, 0]), v - per_image(places[:, number, 1]))
        closer = distance < first
        second = np.minimum(second, np.where(closer, first, distance))
        owner = np.where(closer, number, owner)
        first = np.minimum(first, distance)
    return first, second, owner


def cell(rng: Rng, column: np.ndarray, row: np.ndarray) -> np.ndarray:
    """A random 0..1 value for each whole-numbered cell, different in each image."""
    table = rng.random((len(column), 16, 16), np.float32)
    images = np.arange(len(column))[:, None, None]
    return table[images, np.floor(column).astype(np.int64) % 16, np.floor(row).astype(np.int64) % 16]


def _spiral(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    radius, angle = _radius(rng, u, v)
    return wave(radius + angle / TURN * 2 * sign(rng, len(u), 1, 1))


def _specks(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return step(0.28 - nearest(rng, u, v, 24)[0], 8)


def _scratches(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    total = np.zeros(u.shape, np.float32)
    for _ in range(9):
        angle, offset = uniform(rng, 0, TURN, len(u), 1, 1), uniform(rng, -2, 2, len(u), 1, 1)
        total = np.maximum(total, step(0.07 - np.abs(u * np.cos(angle) + v * np.sin(angle) - offset), 8))
    return total


def _brushed(rng: Rng, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * (cell(rng, v * 5, u * 0.3) - cell(rng, v * 2, u * 0.5) + 0.4 * np.sin(v * 9))


TEXTURES: dict[str, Texture] = {
    "stripes": lambda rng, u, v: wave(u),
    "bars": lambda rng, u, v: step(tent(u) - 0.75, 6),
    "checkerboard": lambda rng, u, v: step(np.sin(TURN * u / 1.5) * np.sin(TURN * v / 1.5), 4),
    "dots": lambda rng, u, v: step(0.3 - np.hypot(saw(u) - 0.5, saw(v) - 0.5), 8),
    "staggered rings": lambda rng, u, v: step(
        0.09 - np.abs(0.32 - np.hypot(saw(u + 0.5 * (np.floor(v) % 2)) - 0.5, saw(v) - 0.5)), 9
    ),
    "rings": lambda rng, u, v: wave(_radius(rng, u, v)[0]),
    "rays": lambda rng, u, v: wave(_radius(rng, u, v)[1] * 10 / TURN),
    "spiral": _spiral,
    "zigzag": lambda rng, u, v: wave(u + 0.6 * tent(v * 0.8)),
    "ripples": lambda rng, u, v: wave(v + 0.45 * np.sin(2 * u)),
    "lattice": lambda rng, u, v: step(np.maximum(tent(u), tent(v)) - 0.75, 6),
    "triangles": lambda rng, u, v: step(saw(u + 0.5 * v) + saw(v) - 1, 5),
    "plaid": lambda rng, u, v: 0.25 * (wave(u) + wave(2.3 * u) + wave(v) + wave(2.3 * v)),
    "spots": lambda rng, u, v: step(cloud(rng, len(u), u.shape[1], (7, 9)) - 0.35, 4),
    "cloud": lambda rng, u, v: 0.5 + 0.5 * cloud(rng, len(u), u.shape[1], (2, 4, 8)),
    "veins": lambda rng, u, v: 1 - 2.5 * np.abs(cloud(rng, len(u), u.shape[1], (4, 8))),
    "grain": lambda rng, u, v: 0.5 + 0.3 * smooth_noise(rng, len(u), u.shape[1], u.shape[1] // 2),
    "wood": lambda rng, u, v: wave(2 * np.hypot(u, 0.25 * v) + 0.5 * cloud(rng, len(u), u.shape[1], (2, 4))),
    "specks": _specks,
    "scratches": _scratches,
    "brushed": _brushed,
    "moire": lambda rng, u, v: wave(_radius(rng, u, v)[0]) * wave(_radius(rng, u, v)[0]) * 1.6,
}


def sample(
    rng: Rng, family: dict[str, Texture], labels: np.ndarray, size: int, zoom: tuple[float, float]
) -> np.ndarray:
    """Each image its class's pattern, drawn at twice the size and shrunk."""
    patterns = list(family.values())

    def draw(label: int, count: int) -> np.ndarray:
        grid = random_grid(rng, count, 2 * size, np.pi, zoom, 0.2, 1.0, 0.03, 3)
        return shrink(patterns[label](rng, grid[..., 0], grid[..., 1]))

    return by_class(labels, size, 1, draw)


def make_textures(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """Grey, any direction, light or dark, unevenly lit."""
    count, size = len(labels), 32
    image = sample(rng, TEXTURES, labels, size, (0.3, 0.6))
    image = 0.5 + (image - 0.5) * per_image(uniform(rng, 0.3, 0.8, count) * sign(rng, count))
    return finish(rng, image + 0.1 * smooth_noise(rng, count, size, 2), noise=0.08)


QUILT_HUES = {
    "red and green": (0.0, 0.36),
    "yellow and blue": (0.15, 0.62),
    "orange and violet": (0.07, 0.77),
    "pink and teal": (0.9, 0.48),
    "red and blue": (0.0, 0.62),
}
QUILT_MOTIFS: dict[str, Texture] = {
    "patches": lambda rng, u, v: (cell(rng, 2 * u, 2 * v) < 0.5).astype(np.float32),
    "pinwheels": lambda rng, u, v: step((saw(u) - 0.5) * (saw(v) - 0.5) * (tent(u) - tent(v)), 99),
    "log cabins": lambda rng, u, v: step(saw(2 * np.maximum(np.abs(saw(u) - 0.5), np.abs(saw(v) - 0.5)) * 2) - 0.5, 6),
    "petals": lambda rng, u, v: step(0.95 - np.maximum(np.hypot(saw(u), saw(v)), np.hypot(1 - saw(u), 1 - saw(v))), 9),
}
QUILTS = tuple(f"{hues}, {motif}" for hues in QUILT_HUES for motif in QUILT_MOTIFS)


def make_quilts(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """The class is two hues and a motif; which hue is where, how bright and how faded changes."""
    count, size, motifs = len(labels), 32, len(QUILT_MOTIFS)
    pattern = sample(rng, QUILT_MOTIFS, labels % motifs, size, (0.5, 0.9))
    hues = np.array(list(QUILT_HUES.values()), np.float32)[labels // motifs]
    hues = np.where(chance(rng, 0.5, count, 1), hues, hues[:, ::-1]) + uniform(rng, -0.045, 0.045, count, 2)
    colours = hsv(hues, uniform(rng, 0.35, 1, count, 2), uniform(rng, 0.35, 1, count, 2))[:, :, None, None, :]
    faded = uniform(rng, 0.8, 1.1, count, 1, 1, 3)  # the colour of the lamp
    image = paint(pattern, colours[:, 0], colours[:, 1]) * faded + 0.08 * cloud(rng, count, size)[..., None]
    return finish(rng, image, noise=0.06)
