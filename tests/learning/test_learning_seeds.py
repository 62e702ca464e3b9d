"""Several seeds of a fine-tuning, each with a file from which it goes on."""

from __future__ import annotations

from pathlib import Path

from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.data.library import Dataset
from rayctsl.learning.seeds import SeedWork, run_seeds
from rayctsl.learning.start import Start

RECIPE = FinetuneConfig(steps=3, seeds=1, batch_size=4, evaluate_every=1)


def test_a_seed_that_is_taken_up_again_tells_where_it_stands(shifted: Dataset, tmp_path: Path) -> None:
    work = SeedWork(Start("none", ModelConfig(name="resnet8", width=4)), shifted, RECIPE, str(tmp_path))
    for told in ([1, 2, 3], [3]):
        steps: list[int] = []
        run_seeds(work, lambda seed, point, steps=steps: steps.append(point.step))
        assert steps == told
