"""One dataset, many initializations: a comparison is a list of fine-tuning jobs, and the standings that they add up to.

It is kept as `comparisons/<id>.json` in the storage; everything else is read from its jobs.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rayctsl.contract import Contract, read_contract
from rayctsl.jobs.standings import rank
from rayctsl.storage import Storage
from serve.jobs.rows import JobRow
from serve.jobs.store import JobStore

FOLDER = "comparisons"
SCRATCH = "from scratch"  # no id has a space
ID = re.compile(r"cmp-[0-9a-f]{16}")
Rows = dict[str, list[JobRow | None]]


class Comparison(Contract):
    """What was asked for, and the jobs that answer it."""

    id: str
    owner: str | None
    dataset: str
    initializations: tuple[str, ...]
    seeds: int
    jobs: dict[str, tuple[str, ...]]
    """By initialization: one job a seed."""
    created_at: float


@dataclass(frozen=True)
class Ranked:
    """A line of the leaderboard; accuracies as shares, None where no number is yet."""

    initialization: str
    accuracy: float | None
    interval: float | None
    behind: float | None
    behind_interval: float | None
    finished: int


def new_comparison(
    owner: str | None, dataset: str, initializations: tuple[str, ...], seeds: int, jobs: dict[str, tuple[str, ...]]
) -> Comparison:
    return Comparison(
        id=f"cmp-{secrets.token_hex(8)}",
        owner=owner,
        dataset=dataset,
        initializations=initializations,
        seeds=seeds,
        jobs=jobs,
        created_at=round(time.time(), 3),
    )


class Comparisons:
    """The comparisons of a storage. None ever changes, so each is read once."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._known: dict[str, Comparison] = {}

    def all(self) -> list[Comparison]:
        """Every comparison, newest first."""
        known, found = self._known, dict[str, Comparison]()
        for name in (file.removesuffix(".json") for file in self._storage.names(FOLDER)):
            if ID.fullmatch(name) and (comparison := known.get(name) or self.find(name)) is not None:
                found[name] = comparison
        self._known = found
        return sorted(found.values(), key=lambda comparison: -comparison.created_at)

    def find(self, identifier: str) -> Comparison | None:
        try:
            data = self._storage.read(f"{FOLDER}/{identifier}.json")
            return read_contract(Comparison, data, f"comparison {identifier}")
        except (FileNotFoundError, ValueError):
            return None

    def save(self, comparison: Comparison) -> None:
        self._storage.write(f"{FOLDER}/{comparison.id}.json", comparison.to_bytes())

    def delete(self, comparison: Comparison) -> None:
        self._storage.delete(f"{FOLDER}/{comparison.id}.json")


def rows_of(store: JobStore, comparisons: Sequence[Comparison]) -> list[Rows]:
    """The jobs of each, by initialization; None where one was deleted."""
    ids = sorted({job for each in comparisons for jobs in each.jobs.values() for job in jobs})
    rows = {row.id: row for row in store.get_many(ids)}
    return [{name: [rows.get(job) for job in jobs] for name, jobs in each.jobs.items()} for each in comparisons]


def leaderboard(rows: Rows) -> list[Ranked]:
    """The best first, judged by the seeds that every initialization has finished; those without a number come last."""
    finished: dict[str, dict[int, float]] = {name: {} for name in rows}
    for name, of in rows.items():
        for seed, row in enumerate(of):
            if row and row.result:
                finished[name][seed] = row.result.accuracy
                if row.result.scratch_accuracy is not None:
                    finished.setdefault(SCRATCH, {})[seed] = row.result.scratch_accuracy
    begun = {name: values for name, values in finished.items() if values}
    common = sorted(set.intersection(*(set(values) for values in begun.values()))) if begun else []
    places = []
    if common:
        for standing in rank({name: [100 * values[seed] for seed in common] for name, values in begun.items()}):
            places.append(
                Ranked(
                    standing.name,
                    _share(standing.mean),
                    _share(standing.interval),
                    _share(standing.behind),
                    _share(standing.behind_interval),
                    len(finished[standing.name]),
                )
            )
    shown = {place.initialization for place in places}
    rest = [Ranked(name, None, None, None, None, len(values)) for name, values in finished.items() if name not in shown]
    return [*places, *rest]


def _share(percent: float) -> float | None:
    return None if math.isnan(percent) else round(percent / 100, 6)
