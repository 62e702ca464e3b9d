"""How long a job will run, by what jobs like it took: seconds for each image that is trained on, scaled by its size."""

from __future__ import annotations

import statistics
import threading
import time

from rayctsl.jobs.contracts import JobSpec
from serve.jobs.rows import JobRow
from serve.jobs.store import JobStore

LOOK_SECONDS = 5.0
REMEMBERED = 100


class Forecast:
    """Looks at the last jobs that succeeded, at most every few seconds."""

    def __init__(self, store: JobStore):
        self._store, self._lock, self._looked = store, threading.Lock(), float("-inf")
        self._rates: dict[tuple[str, str], list[float]] = {}  # by dataset and initialization

    def seconds(self, spec: JobSpec) -> float | None:
        """None when nothing comparable has ended yet: another dataset's images are of another size."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._rates = self._look()
                self._looked = time.monotonic()
            rates = self._rates.get(_kind(spec)) or [
                rate for (dataset, _), found in self._rates.items() if dataset == spec.dataset for rate in found
            ]
        return round(statistics.median(rates) * _work(spec), 1) if rates else None

    def _look(self) -> dict[tuple[str, str], list[float]]:
        rates: dict[tuple[str, str], list[float]] = {}
        for job in self._store.finished(REMEMBERED):
            if (took := _took(job)) is not None:
                rates.setdefault(_kind(job.spec), []).append(took / _work(job.spec))
        return rates


def _kind(spec: JobSpec) -> tuple[str, str]:
    return spec.dataset, spec.initialization.id


def _work(spec: JobSpec) -> float:
    return float(spec.config.steps * spec.config.batch_size * (2 if spec.compare_with_scratch else 1))


def _took(job: JobRow) -> float | None:
    if job.started_at is None or job.finished_at is None or job.attempt != 1:
        return None
    return max(0.05, job.finished_at - job.started_at)
