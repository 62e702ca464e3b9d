"""How good a classifier is: who was taken for whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rayctsl.data.batches import Normalizer
from rayctsl.data.store import SplitInfo, open_split, write_split
from rayctsl.learning.evaluation import confusion_matrix


class Always(nn.Module):
    """Takes everything for class 2."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.tensor([0.0, 1.0, 2.0]).expand(len(images), 3)


def test_rows_are_what_an_image_is_and_columns_what_it_was_taken_for(tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    info = SplitInfo("mine", "test", (4, 4, 1), ("a", "b", "c"))
    write_split(tmp_path / "test.arrow", np.zeros((6, 4, 4, 1), np.uint8), labels, info)
    split = open_split(tmp_path / "test.arrow")
    counts = confusion_matrix(Always(), split, Normalizer(split.info), 3)
    assert counts.tolist() == [[0, 0, 3], [0, 0, 1], [0, 0, 2]]
