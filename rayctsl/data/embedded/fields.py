"""Stacks of small float images, made for all images at once: grids, smooth noise, warping, splatting, colour.

Everything here is [N, H, W] or [N, H, W, 3] float32 in 0..1 (grids: [N, H, W, 2] in -1..1, x then y), plain numpy and
no matrix library, so that the same generator state gives the same bytes in every process.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rng = np.random.Generator


def uniform(rng: Rng, low: float, high: float, *shape: int) -> np.ndarray:
    return (low + (high - low) * rng.random(shape, np.float32)).astype(np.float32)


def chance(rng: Rng, probability: float, *shape: int) -> np.ndarray:
    """True with this probability."""
    return rng.random(shape, np.float32) < probability


def sign(rng: Rng, *shape: int) -> np.ndarray:
    """-1 or 1."""
    return np.where(chance(rng, 0.5, *shape), np.float32(1), np.float32(-1))


def per_image(values: np.ndarray) -> np.ndarray:
    """[N] shaped to multiply [N, H, W]."""
    return values[:, None, None]


def by_class(labels: np.ndarray, size: int, channels: int, draw: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Fill [N, size, size(, channels)] with draw(label, count), one call for each class."""
    shape = (len(labels), size, size) if channels == 1 else (len(labels), size, size, channels)
    out = np.zeros(shape, np.float32)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        out[rows] = draw(int(label), len(rows))
    return out


def random_grid(
    rng: Rng,
    count: int,
    size: int,
    turn: float = 0.2,
    zoom: tuple[float, float] = (0.9, 1.2),
    shear: float = 0.2,
    shift: float = 0.15,
    bend: float = 0.0,
    cells: int = 4,
) -> np.ndarray:
    """Where each pixel of each image looks: a random affine map, bent elastically. turn is in radians."""
    angle, scale = uniform(rng, -turn, turn, count), uniform(rng, *zoom, count)
    stretch, slant = uniform(rng, -0.15, 0.15, count), uniform(rng, -shear, shear, count)
    axis = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    x, y = axis[None, None, :], axis[None, :, None]
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    u = x * per_image(cos) - y * per_image(sin)
    v = x * per_image(sin) + y * per_image(cos)
    u, v = (u + v * per_image(slant)) * per_image(1 + stretch), v * per_image(1 - stretch)
    grid = np.stack([u, v], -1) + uniform(rng, -shift, shift, count, 1, 1, 2)
    if bend:
        for axis_number in range(2):
            grid[..., axis_number] += bend * smooth_noise(rng, count, size, cells)
    return grid


def smooth_noise(rng: Rng, count: int, size: int, cells: int) -> np.ndarray:
    """Gaussian values on a coarse lattice, smoothly joined: about unit variance at the lattice points."""
    coarse = rng.standard_normal((count, cells + 1, cells + 1), np.float32)
    position = (np.arange(size) + 0.5) * cells / size
    left = position.astype(np.int64)
    ease = (position - left).astype(np.float32)
    ease = ease * ease * (3 - 2 * ease)
    rows = coarse[:, left] * (1 - ease)[:, None] + coarse[:, left + 1] * ease[:, None]
    return rows[:, :, left] * (1 - ease) + rows[:, :, left + 1] * ease


def cloud(rng: Rng, count: int, size: int, cells: tuple[int, ...] = (2, 5, 11)) -> np.ndarray:
    """Several octaves of smooth noise, about -1..1."""
    total = np.zeros((count, size, size), np.float32)
    for octave, number in enumerate(cells):
        total += smooth_noise(rng, count, size, number) * 0.6**octave
    return total * 0.6


def warp(masters: np.ndarray, which: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Image i is masters[which[i]] looked up (bilinear, zero outside) at grid[i]."""
    size = masters.shape[-1]
    padded = np.pad(masters, ((0, 0), (1, 1), (1, 1))).reshape(-1)
    width = size + 2
    position = np.clip((grid + 1) * (size / 2) + 0.5, 0, size + 0.99)
    whole = np.floor(position)
    fx, fy = (position - whole)[..., 0], (position - whole)[..., 1]
    corner = whole.astype(np.int64)
    index = per_image(which) * width**2 + corner[..., 1] * width + corner[..., 0]
    top = padded[index] * (1 - fx) + padded[index + 1] * fx
    bottom = padded[index + width] * (1 - fx) + padded[index + width + 1] * fx
    return top * (1 - fy) + bottom * fy


def splat(points: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Density of points [N, P, 2] (in -1..1, weights [N, P]), each spread over its four nearest pixels."""
    count = len(points)
    position = np.clip((points + 1) * (size / 2) - 0.5, -1, size)  # anything outside lands on the rim, cut off below
    corner = np.floor(position).astype(np.int64)
    fraction = position - corner
    width = size + 3
    index = np.arange(count)[:, None] * width**2 + (corner[..., 1] + 1) * width + corner[..., 0] + 1
    total = np.zeros(count * width**2)
    for dy in (0, 1):
        for dx in (0, 1):
            share = np.abs(1 - dx - fraction[..., 0]) * np.abs(1 - dy - fraction[..., 1]) * weights
            total += np.bincount((index + dy * width + dx).reshape(-1), share.reshape(-1), len(total))
    return total.reshape(count, width, width)[:, 1:-2, 1:-2].astype(np.float32)


def blur(image: np.ndarray, amount: np.ndarray | float = 0.5) -> np.ndarray:
    """Mix each pixel of [N, H, W] with its four neighbours."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    around = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    amount = per_image(amount) if isinstance(amount, np.ndarray) else amount
    return image * (1 - amount) + around * (amount / 4)


def shrink(image: np.ndarray) -> np.ndarray:
    """Half the height and width by averaging: drawing at twice the size and shrinking smooths edges."""
    return (image[:, ::2, ::2] + image[:, 1::2, ::2] + image[:, ::2, 1::2] + image[:, 1::2, 1::2]) / 4


def step(distance: np.ndarray, sharpness: float) -> np.ndarray:
    """Inside (distance > 0) to 1, outside to 0, with a soft edge."""
    return np.clip(distance * sharpness + 0.5, 0, 1)


def hsv(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Colours [..., 3] of hue (any real, period 1), saturation and value."""
    sector = (hue[..., None] * 6 + np.array([5, 3, 1], np.float32)) % 6
    return (value[..., None] * (1 - saturation[..., None] * np.clip(np.minimum(sector, 4 - sector), 0, 1))).astype(
        np.float32
    )


def colour_pair(rng: Rng, count: int, distance: float = 0.35) -> tuple[np.ndarray, np.ndarray]:
    """Two colours [N, 1, 1, 3] per image that differ in brightness by at least `distance`."""
    colours = uniform(rng, 0, 1, 2, count, 3)
    bright = colours.mean(-1)
    gap = bright[0] - bright[1]
    push = np.where(gap >= 0, np.float32(0.5), np.float32(-0.5)) * np.maximum(distance - np.abs(gap), 0)
    colours = colours + np.stack([push, -push])[..., None]
    return colours[0][:, None, None, :], colours[1][:, None, None, :]


def paint(mask: np.ndarray, ink: np.ndarray, paper: np.ndarray) -> np.ndarray:
    """Ink where the mask is 1, paper where it is 0, in colour."""
    return paper + (ink - paper) * mask[..., None]


def finish(rng: Rng, image: np.ndarray, noise: float = 0.05, gain: float = 0.2) -> np.ndarray:
    """Random contrast, brightness and pixel noise, then uint8 [N, H, W, C]."""
    assert image.dtype == np.float32, "double precision somewhere above: twice the time and memory"
    image = image if image.ndim == 4 else image[..., None]
    count = len(image)
    contrast = uniform(rng, 1 - gain, 1 + gain, count, 1, 1, 1)
    bright = uniform(rng, -gain / 2, gain / 2, count, 1, 1, 1)
    image = (image - 0.5) * contrast + 0.5 + bright
    image = image + rng.standard_normal(image.shape, np.float32) * uniform(rng, 0, 2 * noise, count, 1, 1, 1)
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
