"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayctsl.data.store import SplitInfo, write_split


@pytest.fixture(scope="session")
def small_tasks(data_root: Path) -> str:
    """Two tiny datasets in the data root, as `--tasks` takes them."""
    random = np.random.default_rng(0)
    for name, channels in (("small_grey", 1), ("small_colour", 3)):
        for split, count in (("train", 64), ("test", 32)):
            info = SplitInfo(name, split, (12, 12, channels), tuple("abcd"))
            images = random.integers(0, 256, (count, 12, 12, channels), dtype=np.uint8)
            write_split(data_root / name / f"{split}.arrow", images, np.arange(count) % 4, info)
    return "small_grey,small_colour"
