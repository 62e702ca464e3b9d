"""Contact sheets: a dataset at a glance, one row per class, training images left, test images right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rayctsl.data.library import Dataset
from rayctsl.data.store import Split

TILE, GAP, MARGIN = 64, 4, 16
TEXT_WIDTH, HEADER = 150, 56
ROWS, TRAIN_COLUMNS, TEST_COLUMNS = 12, 9, 3
PAPER, INK, FAINT = (255, 255, 255), (25, 25, 30), (120, 120, 130)


def write_sheet(dataset: Dataset, out: Path, seed: int = 0) -> None:
    """Draw up to 12 classes, spread over all, with 9 training and 3 test images each, and save the picture."""
    info = dataset.train.info
    count = min(ROWS, info.num_classes)
    classes = np.unique(np.linspace(0, info.num_classes - 1, count).round().astype(int))
    left = MARGIN + TEXT_WIDTH
    test_left = left + TRAIN_COLUMNS * (TILE + GAP) + 3 * GAP
    width = test_left + TEST_COLUMNS * (TILE + GAP) - GAP + MARGIN
    sheet = Image.new("RGB", (width, HEADER + len(classes) * (TILE + GAP) + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    height, wide, channels = info.shape
    facts = f"{info.num_classes} classes, {height} x {wide} {'grey' if channels == 1 else 'colour'}"
    draw.text((MARGIN, 10), dataset.name, INK, ImageFont.load_default(16))
    small = ImageFont.load_default(11)
    draw.text((MARGIN, 34), facts, FAINT, small)
    draw.text((left, 34), f"{len(dataset.train):,} training images", FAINT, small)
    draw.text((test_left, 34), f"{len(dataset.test):,} test images", FAINT, small)
    for row, label in enumerate(classes):
        top = HEADER + row * (TILE + GAP)
        name = _shortened(info.class_names[label], small, TEXT_WIDTH - 12)
        draw.text((MARGIN, top + TILE // 2), name, INK, small, anchor="lm")
        _draw_row(sheet, dataset.train, label, TRAIN_COLUMNS, (left, top), seed)
        _draw_row(sheet, dataset.test, label, TEST_COLUMNS, (test_left, top), seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out, "PNG")


def _draw_row(sheet: Image.Image, split: Split, label: int, columns: int, corner: tuple[int, int], seed: int) -> None:
    members = np.flatnonzero(split.labels == label)
    chosen = np.random.default_rng([seed, label]).permutation(members)[:columns]
    for column, image in enumerate(split.images(chosen)):
        tile = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).convert("RGB")
        # Small images keep their pixels, large ones are smoothed.
        method = Image.Resampling.NEAREST if max(tile.size) <= TILE else Image.Resampling.LANCZOS
        sheet.paste(tile.resize((TILE, TILE), method), (corner[0] + column * (TILE + GAP), corner[1]))


def _shortened(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
