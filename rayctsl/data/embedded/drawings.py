"""Line art as clouds of points: sketched objects, growing plants and fractals.

A drawing is a set of points that depend on the image's own jittered parameters; `splat` turns the points into ink.
All images of a class are drawn together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rayctsl.data.embedded.fields import (
    Rng,
    blur,
    by_class,
    chance,
    cloud,
    finish,
    hsv,
    paint,
    per_image,
    sign,
    smooth_noise,
    splat,
    uniform,
)
from rayctsl.data.embedded.templates import PLANTS, SKETCHES


def place(rng: Rng, points: np.ndarray, turn: float, zoom: tuple[float, float], shift: float) -> np.ndarray:
    """Turn, stretch, mirror and move the points [N, P, 2] of each image."""
    count = len(points)
    angle, scale = uniform(rng, -turn, turn, count, 1), uniform(rng, *zoom, count, 1)
    stretch, side = uniform(rng, 0.85, 1.18, count, 1), sign(rng, count, 1)
    x, y = points[..., 0] * scale * stretch * side, points[..., 1] * scale / stretch
    turned = np.stack([x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)], -1)
    return turned + uniform(rng, -shift, shift, count, 1, 2)


def centre(points: np.ndarray) -> np.ndarray:
    """Move and scale each image's points so that they fill -1..1."""
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    return (points - (low + high) / 2) * (2 / np.maximum((high - low).max(-1, keepdims=True), 1e-3))


@dataclass(frozen=True)
class Strokes:
    """Control points [C, 2] and, along the lines between them, the points (1 - t) * control[a] + t * control[b]."""

    control: np.ndarray
    a: np.ndarray
    b: np.ndarray
    t: np.ndarray


def parse_sketch(text: str, spacing: float = 0.035) -> Strokes:
    """Strokes separated by ';'. 'x,y x,y ...' is a polyline, 'o x,y rx,ry' an ellipse, in 0..10 with y down."""
    control: list[np.ndarray] = []
    a, b, t = [], [], []
    for part in text.split(";"):
        words = part.split()
        numbers = np.array([[float(value) for value in word.split(",")] for word in words if word != "o"]) / 5
        if words[0] == "o":
            angle = np.linspace(0, 2 * np.pi, 13)[:, None]
            numbers = (numbers[0] - 1) + numbers[1] * np.concatenate([np.cos(angle), np.sin(angle)], 1)
        else:
            numbers = numbers - 1
        for index in range(len(numbers) - 1):
            length = np.hypot(*(numbers[index + 1] - numbers[index]))
            steps = (np.arange(max(2, int(length / spacing))) + 0.5) / max(2, int(length / spacing))
            t.append(steps)
            a.append(np.full(len(steps), len(control) + index))
            b.append(np.full(len(steps), len(control) + index + 1))
        control.extend(numbers)
    joined = [np.concatenate(piece) for piece in (a, b, t)]
    return Strokes(np.array(control), *joined)


def make_sketches(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """Quick pencil drawings: shaky corners, forgotten lines, crumpled paper, or chalk on a board."""
    count, size = len(labels), 64
    drawings = [parse_sketch(text) for text in SKETCHES.values()]

    def draw(label: int, number: int) -> np.ndarray:
        drawing = drawings[label]
        control = drawing.control + 0.05 * rng.standard_normal((number, *drawing.control.shape))
        points = control[:, drawing.a] * (1 - drawing.t[:, None]) + control[:, drawing.b] * drawing.t[:, None]
        kept = (rng.random((number, len(drawing.control))) > 0.06)[:, drawing.a]
        return splat(place(rng, points, 0.35, (0.5, 0.85), 0.25), kept, size)

    ink = by_class(labels, size, 1, draw)
    line = np.clip(blur(ink, 0.5) * per_image(uniform(rng, 0.8, 3, count)), 0, 1)
    paper = 0.8 + 0.1 * cloud(rng, count, size, (2, 5, 13))
    shade = per_image(uniform(rng, 0.05, 0.45, count))
    image = paper + (shade - paper) * line
    blackboard = per_image(chance(rng, 0.4, count))
    return finish(rng, np.where(blackboard, 1 - image, image), noise=0.05)


@dataclass(frozen=True)
class Growth:
    """The segments of a plant: each starts where its parent ends, turned `turns` times its angle."""

    parent: np.ndarray
    turns: np.ndarray
    depth: np.ndarray
    tip: np.ndarray
    degrees: float


def grow(axiom: str, rules: dict[str, str], rounds: int, degrees: float) -> Growth:
    """Rewrite the axiom, then read it as a turtle's path: F draws, + and - turn, [ and ] branch."""
    text = axiom
    for _ in range(rounds):
        text = "".join(rules.get(letter, letter) for letter in text)
    parent, turns, depth = [], [], []
    here, turn, level = -1, 0.0, 0
    stack: list[tuple[int, float, int]] = []
    for letter in text:
        if letter == "F":
            parent.append(here)
            turns.append(turn)
            depth.append(level)
            here = len(parent) - 1
        elif letter in "+-":
            turn += 1 if letter == "+" else -1
        elif letter == "[":
            stack.append((here, turn, level))
            level += 1
        elif letter == "]":
            here, turn, level = stack.pop()
    tip = np.ones(len(parent), bool)
    tip[[number for number in parent if number >= 0]] = False
    return Growth(np.array(parent), np.array(turns), np.array(depth), tip, degrees)


def grow_points(rng: Rng, plant: Growth, count: int, per_segment: int = 6) -> np.ndarray:
    """Points along all segments, [count, segments * per_segment, 2]: own angle, own wind, own unevenness."""
    segments = len(plant.parent)
    angle = np.radians(plant.degrees) * uniform(rng, 0.8, 1.25, count)
    heading = plant.turns * angle[:, None] + 0.1 * rng.standard_normal((count, segments))
    heading += uniform(rng, -0.12, 0.12, count, 1) * plant.depth
    length = uniform(rng, 0.75, 1.25, count, segments) * 0.9**plant.depth
    move = np.stack([np.sin(heading), -np.cos(heading)], -1) * length[..., None]
    end = np.zeros((count, segments + 1, 2))  # the last row is the root: parent -1
    for number, parent in enumerate(plant.parent):
        end[:, number] = end[:, parent] + move[:, number]
    along = (np.arange(per_segment) + 1) / per_segment
    points = end[:, plant.parent][:, :, None] + move[:, :, None] * along[None, None, :, None]
    return points.reshape(count, -1, 2)


def make_plants(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """Branching plants, each grown anew, with coloured stems and leaves, by day or by night, others faint behind."""
    count, size, per_segment = len(labels), 48, 6
    plants = [grow(*recipe) for recipe in PLANTS.values()]

    def draw(label: int, number: int) -> np.ndarray:
        plant = plants[label]
        points = place(rng, centre(grow_points(rng, plant, number, per_segment)), 0.5, (0.55, 0.9), 0.25)
        stem = splat(points, np.repeat(0.9**plant.depth, per_segment)[None], size)
        ends = points[:, per_segment - 1 :: per_segment][:, plant.tip]
        leaf = splat(ends, np.ones((1, 1)), size)
        return np.stack([stem, leaf], -1)

    ink = by_class(labels, size, 2, draw)
    stem = np.clip(blur(ink[..., 0], 0.4) * per_image(uniform(rng, 0.6, 1.6, count)), 0, 1)
    leaf = np.clip(blur(blur(ink[..., 1], 0.8), 0.6) * per_image(uniform(rng, 0, 6, count)), 0, 1)
    behind = np.roll(stem[rng.permutation(count)], size // 2, 2) * per_image(uniform(rng, 0, 0.35, count))
    low, high = uniform(rng, 0.55, 1, 2, count, 1, 1, 3)
    height = np.linspace(0, 1, size, dtype=np.float32)[None, :, None, None]
    ground = low * height + high * (1 - height) + 0.08 * cloud(rng, count, size, (2, 5, 11))[..., None]
    hues = uniform(rng, 0.0, 0.45, count), uniform(rng, -0.15, 0.4, count)
    wood = hsv(hues[0], uniform(rng, 0.3, 1, count), uniform(rng, 0.1, 0.45, count))[:, None, None]
    green = hsv(hues[1], uniform(rng, 0.4, 1, count), uniform(rng, 0.3, 0.7, count))[:, None, None]
    image = paint(stem, wood, paint(leaf, green, paint(behind, wood, ground)))
    night = chance(rng, 0.5, count)[:, None, None, None]
    return finish(rng, np.where(night, 1 - image, image), noise=0.05)


FRACTAL_SEEDS = tuple(range(24))


def fractal_maps(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two to four contracting affine maps [M, 2, 3] and how often each is used."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 5))
    turn, flip = rng.uniform(-np.pi, np.pi, (2, number))
    big, small = rng.uniform(0.45, 0.85, number), rng.uniform(0.25, 0.75, number)
    maps = np.zeros((number, 2, 3))
    maps[:, 0, 0], maps[:, 0, 1] = big * np.cos(turn), -small * np.sin(flip)
    maps[:, 1, 0], maps[:, 1, 1] = big * np.sin(turn), small * np.cos(flip)
    maps[:, :, 2] = rng.uniform(-1, 1, (number, 2))
    area = np.abs(np.linalg.det(maps[:, :, :2])) + 0.03
    return maps, area / area.sum()


def fractal_points(rng: Rng, seed: int, count: int, steps: int) -> np.ndarray:
    """The chaos game played in every image at once, each with its own slightly changed maps."""
    maps, often = fractal_maps(seed)
    own = maps * (1 + 0.08 * rng.standard_normal((count, *maps.shape)))
    choice = rng.choice(len(maps), (steps, count), p=often)
    images = np.arange(count)
    point = np.zeros((count, 2))
    points = np.zeros((count, steps, 2))
    for number in range(steps):
        chosen = own[images, choice[number]]
        point = np.clip((chosen[:, :, :2] * point[:, None, :]).sum(-1) + chosen[:, :, 2], -9, 9)
        points[:, number] = point
    return points[:, 20:]


def make_fractals(rng: Rng, labels: np.ndarray) -> np.ndarray:
    """Attractors of random affine maps, as clouds of light or dark dust."""
    count, size = len(labels), 32

    def draw(label: int, number: int) -> np.ndarray:
        points = centre(fractal_points(rng, FRACTAL_SEEDS[label], number, 620))
        points = place(rng, points, 0.4, (0.7, 0.95), 0.15)
        return splat(points, np.ones((1, 1)), size)

    dust = by_class(labels, size, 1, draw)
    dust = np.clip(dust * per_image(uniform(rng, 0.3, 0.9, count)), 0, 1)
    ground = 0.25 + 0.12 * smooth_noise(rng, count, size, 3)
    image = ground + (0.95 - ground) * dust
    dark = per_image(chance(rng, 0.5, count))
    return finish(rng, np.where(dark, 1 - image, image), noise=0.05)
