"""The parts of one running service, put together once and handed to the routes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from rayctsl.data.roots import data_root
from rayctsl.registry import storage_root
from rayctsl.storage import Storage
from serve.access import AccessLog
from serve.comparisons import Comparisons
from serve.datasets import DatasetCatalog
from serve.house import House
from serve.index import InitializationIndex
from serve.jobs.dispatcher import Dispatcher
from serve.jobs.forecast import Forecast
from serve.jobs.leader import Leadership
from serve.jobs.pool import WorkerPool
from serve.jobs.removal import Removal
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database
from serve.keys import NOBODY_IN_PARTICULAR, REFRESH_SECONDS, Caller, KeyStore
from serve.metrics import ServiceMetrics
from serve.models import PublishedModels
from serve.predictions import Predictor
from serve.ray_head import RayHead, find_cluster
from serve.ray_jobs import RayJobs, cluster_token
from serve.retention import Retention
from serve.settings import Settings
from serve.uploads import Uploads
from serve.webhooks import Webhooks

SPARE_BYTES = 1024 * 1024  # below this a disk counts as full


class Service:
    """Everything behind the routes."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.storage = Storage(storage_root(settings.storage))
        self.metrics = ServiceMetrics()
        self.index = InitializationIndex(settings.storage, settings.folder / "cache")
        self.datasets = DatasetCatalog(settings.data_root)
        self.uploads = Uploads(
            settings.folder / "inbox",
            data_root(settings.data_root),
            settings.upload_limit,
            settings.upload_share,
            patience=3 * settings.request_seconds,
        )
        url = find_cluster(settings.address) if settings.address else None
        self.ray = RayJobs(url, cluster_token() if url else None)
        self.head = None if url else RayHead(settings.folder, self.ray)
        database = open_database(settings.database_url)
        self.store, self.leadership = JobStore(database), Leadership(database)
        self.house = House()
        self.pool = WorkerPool(settings, self.store, self.ray, self.storage, self.house)
        self.dispatcher = Dispatcher(
            settings, self.store, self.pool, self.storage, self.metrics, self.leadership, self.house
        )
        if self.head:
            self.dispatcher.before_turn = self.head.ensure
        self.keys = KeyStore(database, settings.token)
        self.access = AccessLog(settings.folder)
        self.predictor = Predictor(settings.max_predictions)
        self.forecast = Forecast(self.store)
        self.removal = Removal(self.store, self.storage, settings.folder / "cache")
        self.comparisons = Comparisons(self.storage)
        self.retention = Retention(
            settings, self.store, self.storage, self.removal, self.uploads, self.comparisons, self._leads
        )
        self.webhooks = Webhooks(database, self.store, settings.webhooks, self._leads)
        self.models = PublishedModels(self.storage, settings.folder / "cache")
        self.streams = 0
        self.closing = asyncio.Event()
        self._turning: asyncio.Task[None] | None = None
        self._others: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.house.run(self.index.refresh)
        await self.house.run(self.uploads.clear_away, not self.settings.may_be_several)
        self._turning = asyncio.create_task(self.dispatcher.run())
        others = (self.pool.watch, self.retention.run, self.webhooks.run, self._watch_keys)
        self._others = [asyncio.create_task(run()) for run in others]

    async def _watch_keys(self) -> None:
        """While the database does not answer, the keys known last are good."""
        while True:
            with contextlib.suppress(SQLAlchemyError):
                await self.house.run(self.keys.refresh)
            await asyncio.sleep(REFRESH_SECONDS)

    def stop_streams(self) -> None:
        """Let every open stream end; safe from a signal's handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.closing.set)

    def hurry(self) -> None:
        """A job has come: the dispatcher need not wait for its next turn. Safe from any thread."""
        self.dispatcher.hurry()

    def _leads(self) -> bool:
        return self.leadership.leads

    @property
    def dispatches(self) -> bool:
        return self._turning is not None and not self._turning.done()

    def is_full(self) -> bool:
        """Whether the disk of the database or the storage has no room for another job."""
        folders = {self.settings.folder, Path(self.storage.root)} if self.storage.local else {self.settings.folder}
        return any(shutil.disk_usage(folder).free < SPARE_BYTES for folder in folders if folder.exists())

    async def close(self) -> None:
        self.closing.set()
        for task in (*([self._turning] if self._turning else []), *self._others):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.predictor.close()
        await self.uploads.close()
        await self.pool.close()
        if self.head:
            await self.house.run(self.head.stop)
        elif self.leadership.leads:
            await self.house.run(self.pool.send_away_idle)
        await self.house.run(self.leadership.release)
        await self.ray.close()
        self.store.close()
        self.access.close()
        self.house.close()


def caller_of(request: Request) -> Caller:
    """Who asks; without keys it is nobody in particular, who may do everything."""
    caller: Caller = request.scope.get("caller", NOBODY_IN_PARTICULAR)
    return caller


async def service_of(request: Request) -> Service:
    """The service that a request belongs to; a dependency of the routes (async, for others cost a thread each)."""
    service: Service = request.app.state.service
    return service
