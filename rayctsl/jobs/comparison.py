"""One dataset, several starts: the same seeds, batches and recipe for each, so that differences can be paired."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rayctsl.config import FinetuneConfig
from rayctsl.data.library import Dataset
from rayctsl.jobs.training import finetune_seeds
from rayctsl.learning.finetune import FinetuneResult
from rayctsl.learning.seeds import OnPoint
from rayctsl.learning.start import Start


def compare(
    starts: Mapping[str, Start],
    dataset: Dataset,
    config: FinetuneConfig,
    *,
    workers: int | None = 1,
    threads: int | None = None,
    watch: Callable[[str], OnPoint] | None = None,
) -> dict[str, FinetuneResult]:
    """Fine-tune every start with the same recipe and seeds; results by the names given, in their order.

    Args:
        watch: gives what is told of the points of a start's seeds.
    """
    results = {}
    for name, start in starts.items():
        on_point = watch(name) if watch else None
        results[name] = finetune_seeds(start, dataset, config, workers=workers, threads=threads, on_point=on_point)
    return results
