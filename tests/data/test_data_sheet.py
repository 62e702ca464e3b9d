"""A contact sheet has training images on the left and test images on the right, a class in each row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from rayctsl.data import sheet
from rayctsl.data.library import open_dataset
from rayctsl.data.sheet import GAP, HEADER, TILE, write_sheet
from rayctsl.data.store import SplitInfo, write_split

LEFT = sheet.MARGIN + sheet.TEXT_WIDTH
RIGHT = LEFT + sheet.TRAIN_COLUMNS * (TILE + GAP) + 3 * GAP


def test_every_tile_is_of_its_split_and_class(tmp_path: Path) -> None:
    """Three classes in three greys, test images lighter than training images; two of each."""
    labels = np.arange(3).repeat(2)
    for split, light in (("train", 10), ("test", 100)):
        images = np.broadcast_to((light + 20 * labels).astype(np.uint8)[:, None, None, None], (6, 8, 8, 1))
        write_split(
            tmp_path / "greys" / f"{split}.arrow",
            images.copy(),
            labels,
            SplitInfo("greys", split, (8, 8, 1), tuple("abc")),
        )
    write_sheet(open_dataset("greys", str(tmp_path)), tmp_path / "sheet.png")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png").convert("L"))
    rows = [HEADER + row * (TILE + GAP) + TILE // 2 for row in range(3)]
    columns = [left + column * (TILE + GAP) + TILE // 2 for left in (LEFT, RIGHT) for column in range(3)]
    paper = 255
    assert pixels[np.ix_(rows, columns)].tolist() == [
        [10 + 20 * row] * 2 + [paper] + [100 + 20 * row] * 2 + [paper] for row in range(3)
    ]
