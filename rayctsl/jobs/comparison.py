"""One dataset, several starts: the same seeds, batches and recipe for each, so that differences can be paired."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rayctsl.config import FinetuneConfig
from rayctsl.data.library import Dataset
from rayctsl.jobs.training import finetune_seeds
from rayctsl.learning.finetune import CurvePoint, FinetuneResult
from rayctsl.learning.start import Start


def compare(
    starts: Sequence[Start],
    dataset: Dataset,
    config: FinetuneConfig,
    *,
    workers: int | None = 1,
    threads: int | None = None,
    on_point: Callable[[str, int, CurvePoint], None] | None = None,
) -> dict[str, FinetuneResult]:
    """Fine-tune every start with the same recipe and seeds; results by the start's name, in the order given."""
    results = {}
    for start in starts:

        def show(seed: int, point: CurvePoint, name: str = start.name) -> None:
            if on_point:
                on_point(name, seed, point)

        results[start.name] = finetune_seeds(start, dataset, config, workers=workers, threads=threads, on_point=show)
    return results
