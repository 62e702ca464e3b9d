"""Taking ended jobs and their models away: files first, then the row, so that a removal cut off can be repeated."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rayctsl.jobs.files import CHECKPOINT, MODEL, attempt_folder, job_folder
from rayctsl.storage import Storage
from serve.jobs.rows import JobRow
from serve.jobs.store import JobStore


class Removal:
    """Removes from one storage and its store.

    Args:
        cache: where copies of a remote storage's models are kept.
    """

    def __init__(self, store: JobStore, storage: Storage, cache: Path):
        self._store, self._storage, self._cache = store, storage, cache

    def job(self, job: JobRow) -> None:
        """The job with all its files."""
        if self._storage.exists(job_folder(job.id)):
            self._storage.delete_folder(job_folder(job.id))
        self._forget_copy(job)
        self._store.delete(job)

    def model(self, job: JobRow) -> None:
        """Its weights alone; result, curves and log stay."""
        folder = self._storage.inside(job_folder(job.id))
        for number in range(1, job.attempt + 1):
            for name in (MODEL, CHECKPOINT):
                folder.delete(f"{attempt_folder(number)}/{name}")
        self._forget_copy(job)
        self._store.change(job, model_deleted_at=round(time.time(), 3))

    def _forget_copy(self, job: JobRow) -> None:
        shutil.rmtree(self._cache / job.id, ignore_errors=True)
