"""Two tiny datasets, and sweep files over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rayctsl.data.store import SplitInfo, write_split

TASKS = ("sweep_grey", "sweep_colour")


@pytest.fixture(scope="session")
def sweep_tasks(data_root: Path) -> tuple[str, ...]:
    """Two tiny datasets whose classes differ in brightness, so that there is something to learn."""
    random = np.random.default_rng(0)
    for name, channels in zip(TASKS, (1, 3), strict=True):
        for split, count in (("train", 96), ("test", 16)):
            labels = np.arange(count) % 3
            noise = random.integers(0, 60, (count, 12, 12, channels))
            images = (noise + 80 * labels[:, None, None, None]).astype(np.uint8)
            write_split(
                data_root / name / f"{split}.arrow",
                images,
                labels,
                SplitInfo(name, split, (12, 12, channels), tuple("abc")),
            )
    return TASKS


def sweep_keys(inner_steps: int = 4, base_more: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "inner_steps": inner_steps,
        "model": {"name": "resnet8", "width": 4},
        "data": {"tasks": list(TASKS), "batch_size": 8},
    }
    base.update(base_more or {})
    keys = {"base": base, "budget": 8, "report_every": 4, "validation": {"steps": 4, "batch_size": 8, "held_out": 0.4}}
    return {**keys, **more}


@pytest.fixture
def write_sweep(tmp_path: Path) -> Callable[..., str]:
    """Writes a sweep file and returns its path."""

    def write(**keys: Any) -> str:
        path = tmp_path / "sweep-file.yaml"
        path.write_text(yaml.safe_dump(sweep_keys(**keys)))
        return str(path)

    return write
