"""What is taken away by itself: jobs, models and own datasets after so many days, and what dead workers left.

The leader looks every few minutes. Every rule is off until the operator sets its days, but for leftovers.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from rayctsl.jobs.files import worker_folder
from rayctsl.storage import Storage
from rayctsl.words import one_line
from serve.comparisons import Comparisons, rows_of
from serve.jobs.pool import KEPT_GENERATIONS
from serve.jobs.removal import Removal
from serve.jobs.store import JobStore
from serve.problems import log
from serve.settings import Settings
from serve.uploads import Uploads

EVERY_SECONDS = 300.0
AT_ONCE = 200  # jobs of one look, so that none takes long
DAY = 86400.0
WORKER = re.compile(r"rayctsl-([0-9a-f]{8})-(\d+)-(\d+)")


class Retention:
    """The rules of one service."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        storage: Storage,
        removal: Removal,
        uploads: Uploads,
        compared: Comparisons,
        leads: Callable[[], bool],
    ):
        self._settings, self._store, self._storage = settings, store, storage
        self._removal, self._uploads, self._compared, self._leads = removal, uploads, compared, leads

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if self._leads():
                await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Apply every rule once; a fault of one does not keep the others from their turn."""
        for rule in (self._jobs, self._models, self._datasets, self._comparisons, self._workers, self._leftovers):
            try:
                rule()
            except Exception as error:
                log.error("retention of %s failed: %s", rule.__name__.strip("_"), one_line(error, 300))

    def _jobs(self) -> None:
        if (days := self._settings.keep_jobs_days) is not None:
            for job in self._store.ended_before(time.time() - days * DAY, AT_ONCE):
                self._removal.job(job)
                log.info("job %s was deleted: it ended more than %g days ago", job.id, days)

    def _models(self) -> None:
        if (days := self._settings.keep_models_days) is not None:
            for job in self._store.ended_before(time.time() - days * DAY, AT_ONCE, with_model=True):
                self._removal.model(job)
                log.info("the model of job %s was deleted: it is older than %g days", job.id, days)

    def _datasets(self) -> None:
        days = self._settings.keep_datasets_days
        for upload in self._uploads.inbox.all() if days is not None else ():
            used = max(upload.changed_at, self._store.last_use(upload.stored) or 0.0)
            old = used < time.time() - (days or 0.0) * DAY
            if old and upload.status in ("ready", "failed") and not self._store.needs_dataset(upload.stored):
                self._uploads.remove(upload)
                log.info("dataset %s was deleted: unused for more than %g days", upload.stored, days)

    def _comparisons(self) -> None:
        """Those whose jobs have all gone."""
        for comparison in self._compared.all():
            (rows,) = rows_of(self._store, [comparison])
            if not any(row for of in rows.values() for row in of):
                self._compared.delete(comparison)

    def _workers(self) -> None:
        """Folders of workers whose slot has had several others since; later ones may still have to be told to go."""
        current = {slot.slot: slot.generation for slot in self._store.slots()}
        for name in self._storage.names("workers"):
            match = WORKER.fullmatch(name)
            if match is None or match[1] != self._settings.service_name:
                continue
            if int(match[3]) <= current.get(int(match[2]), 0) - KEPT_GENERATIONS:
                self._storage.delete_folder(worker_folder(name))

    def _leftovers(self) -> None:
        self._uploads.clear_away(alone=False)
