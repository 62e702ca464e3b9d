"""Flat figures as functions of the plane: coloured shapes in clutter, and waving flags.

A shape returns how far a point lies inside it (positive inside, about 1 = the shape's radius); a flag returns which of
its three colours a point has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rayctsl.data.embedded.fields import (
    Rng,
    by_class,
    chance,
    cloud,
    colour_pair,
    finish,
    paint,
    per_image,
    random_grid,
    shrink,
    smooth_noise,
    step,
    uniform,
)

Figure = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _polygon(x: np.ndarray, y: np.ndarray, sides: int) -> np.ndarray:
    half = np.pi / sides
    folded = np.mod(np.arctan2(y, x), 2 * half) - half
    return 0.95 * np.cos(half) - np.hypot(x, y) * np.cos(folded)


def _star(x: np.ndarray, y: np.ndarray, tips: int, waist: float) -> np.ndarray:
    """Fold the plane onto one half of one tip; its edge runs from the waist to the tip."""
    half = np.pi / tips
    angle, radius = np.abs(np.mod(np.arctan2(y, x), 2 * half) - half), np.hypot(x, y)
    edge_x, edge_y = np.cos(half) - waist, np.sin(half)
    across = (radius * np.cos(angle) - waist) * edge_y - radius * np.sin(angle) * edge_x
    return -across / np.hypot(edge_x, edge_y)


def _petals(x: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
    return 0.62 + 0.32 * np.cos(number * np.arctan2(y, x)) - np.hypot(x, y)


def _box(x: np.ndarray, y: np.ndarray, width: float, height: float) -> np.ndarray:
    return np.minimum(width - np.abs(x), height - np.abs(y))


def _heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.62 - np.hypot(x, y - 0.15 + 0.9 * np.sqrt(np.abs(x)) * 0.8 - 0.35)


SHAPES: dict[str, Figure] = {
    "disc": lambda x, y: 0.8 - np.hypot(x, y),
    "triangle": lambda x, y: _polygon(x, y, 3),
    "square": lambda x, y: _polygon(x, y, 4),
    "pentagon": lambda x, y: _polygon(x, y, 5),
    "four-pointed star": lambda x, y: _star(x, y, 4, 0.3),
    "five-pointed star": lambda x, y: _star(x, y, 5, 0.4),
    "eight-pointed star": lambda x, y: _star(x, y, 8, 0.6),
    "cross": lambda x, y: np.maximum(_box(x, y, 0.28, 0.9), _box(x, y, 0.9, 0.28)),
    "ring": lambda x, y: 0.2 - np.abs(np.hypot(x, y) - 0.65),
    "frame": lambda x, y: 0.17 - np.abs(np.maximum(np.abs(x), np.abs(y)) - 0.6),
    "hollow triangle": lambda x, y: 0.13 - np.abs(_polygon(x, y, 3) - 0.15),
    "crescent": lambda x, y: np.minimum(0.85 - np.hypot(x, y), np.hypot(x - 0.45, y) - 0.65),
    "heart": _heart,
    "half disc": lambda x, y: np.minimum(0.9 - np.hypot(x, y - 0.35), 0.35 - y),
    "pie": lambda x, y: np.minimum(0.85 - np.hypot(x, y), (np.abs(np.arctan2(y, x)) - 0.6) * np.hypot(x, y)),
    "lens": lambda x, y: 1.2 - np.maximum(np.hypot(x, y - 0.8), np.hypot(x, y + 0.8)),
    "clover": lambda x, y: _petals(x, y, 3),
    "blossom": lambda x, y: _petals(x, y, 5),
    "bow": lambda x, y: np.minimum(0.9 - np.abs(x), 0.75 * np.abs(x) + 0.05 - np.abs(y)),
    "corner": lambda x, y: np.maximum(_box(x + 0.5, y, 0.28, 0.85), _box(x, y - 0.57, 0.8, 0.28)),
    "tee": lambda x, y: np.maximum(_box(x, y + 0.57, 0.85, 0.26), _box(x, y, 0.26, 0.85)),
    "chevron": lambda x, y: np.minimum(0.28 - np.abs(y - np.abs(x) + 0.35) * 0.75, 0.85 - np.abs(x)),
}


def make_shapes(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """One large shape, turned and stretched, among specks of its own colour and under a bar of another."""
    count, size = len(labels), 32
    figures = list(SHAPES.values())

    def draw(label: int, number: int) -> np.ndarray:
        grid = random_grid(rng, number, 2 * size, 0.6, (0.8, 1.1), 0.2, 0.15, 0.03, 3)
        return shrink(step(figures[label](grid[..., 0], grid[..., 1]), size / 2))

    shape = by_class(labels, size, 1, draw)
    ink, paper = colour_pair(rng, count, 0.6)
    specks = step(smooth_noise(rng, count, size, 7) - 1.5, 2) * per_image(chance(rng, 0.4, count))
    bar_grid = random_grid(rng, count, size, np.pi, (0.8, 1.2), 0, 0.6)
    bar = step(0.1 - np.abs(bar_grid[..., 0]), size / 4) * per_image(chance(rng, 0.35, count))
    ground = paper + 0.1 * cloud(rng, count, size, (2, 5, 9))[..., None] * uniform(rng, 0, 2, count, 1, 1, 3)
    filled = ink + 0.1 * smooth_noise(rng, count, size, 5)[..., None]
    image = paint(bar, uniform(rng, 0, 1, count, 1, 1, 3), paint(np.maximum(shape, specks), filled, ground))
    return finish(rng, image, noise=0.04)


def _bands(x: np.ndarray, number: int) -> np.ndarray:
    return np.clip(np.floor((x + 1) / 2 * number), 0, number - 1) % 3


def _either(inside: np.ndarray, first: int = 1, otherwise: np.ndarray | int = 0) -> np.ndarray:
    return np.where(inside, first, otherwise)


FLAGS: dict[str, Figure] = {
    "two bars": lambda x, y: _bands(y, 2),
    "three bars": lambda x, y: _bands(y, 3),
    "two pales": lambda x, y: _bands(x, 2),
    "three pales": lambda x, y: _bands(x, 3),
    "many stripes": lambda x, y: np.floor((y + 1) * 4.5) % 2,
    "off-centre cross": lambda x, y: _either((np.abs(x + 0.3) < 0.16) | (np.abs(y) < 0.16)),
    "edged cross": lambda x, y: _either(
        np.minimum(np.abs(x), np.abs(y)) < 0.12, 1, _either(np.minimum(np.abs(x), np.abs(y)) < 0.28, 2)
    ),
    "short cross": lambda x, y: _either((np.minimum(np.abs(x), np.abs(y)) < 0.17) & (np.hypot(x, y) < 0.62)),
    "saltire": lambda x, y: _either(np.abs(np.abs(x) - np.abs(y)) < 0.2),
    "canton": lambda x, y: _either((x < 0) & (y < 0.1), 1, 2 * (np.floor((y + 1) * 3) % 2)),
    "quarters": lambda x, y: (x > 0) ^ (y > 0),
    "disc": lambda x, y: _either(np.hypot(x, y) < 0.5),
    "ring": lambda x, y: _either(np.abs(np.hypot(x, y) - 0.5) < 0.14),
    "hoist triangle": lambda x, y: _either(x + 1 < 1.1 * (1 - np.abs(y)), 2, _bands(y, 2)),
    "bend": lambda x, y: _either(np.abs(x + y) < 0.35),
    "halves along a diagonal": lambda x, y: (x + y > 0) * 1,
    "border": lambda x, y: _either(np.maximum(np.abs(x), np.abs(y)) > 0.7),
    "lozenge": lambda x, y: _either(np.abs(x) + np.abs(y) < 0.8),
    "rising sun": lambda x, y: _either(np.hypot(x, y) < 0.35, 1, 2 * (np.sin(10 * np.arctan2(y, x)) > 0)),
    "star": lambda x, y: _either(_star(-y, x, 5, 0.4) > 0.05 + 0 * x),
}


def make_flags(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """The class is the layout; the three colours are free. A waving flag, shaded, before the sky."""
    count, size = len(labels), 32
    figures = list(FLAGS.values())

    def draw(label: int, number: int) -> np.ndarray:
        grid = random_grid(rng, number, 2 * size, 0.25, (0.6, 0.95), 0.25, 0.2)
        x, y = grid[..., 0], grid[..., 1]
        rate, phase = uniform(rng, 2, 5, number), uniform(rng, 0, 6.3, number)
        swell = np.sin(x * per_image(rate) + per_image(phase))
        y = y + 0.12 * swell
        colours = uniform(rng, 0, 1, number, 4, 3)
        colours[:, 1] = np.mod(colours[:, 0] + uniform(rng, 0.3, 0.7, number, 3), 1)
        part = figures[label](x, y).astype(np.int64)
        part = np.where(np.maximum(np.abs(x), np.abs(y)) > 1, 3, part)
        image = colours[np.arange(number)[:, None, None], part]
        image = image * (1 + np.where(part == 3, 0, 0.2) * np.cos(x * per_image(rate) + per_image(phase)))[..., None]
        return shrink(image)

    image = by_class(labels, size, 3, draw)
    image = image + 0.1 * cloud(rng, count, size, (2, 5, 9))[..., None]
    return finish(rng, image, noise=0.05)
