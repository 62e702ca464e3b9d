"""The parts of one running service, put together once and handed to the routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Any

from fastapi import Request

from rayctsl.registry import storage_root
from rayctsl.storage import Storage
from serve.datasets import DatasetCatalog
from serve.index import InitializationIndex
from serve.jobs.dispatcher import Dispatcher
from serve.jobs.leader import Leadership
from serve.jobs.pool import WorkerPool
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database
from serve.metrics import ServiceMetrics
from serve.ray_head import RayHead, find_cluster
from serve.ray_jobs import RayJobs, cluster_token
from serve.settings import Settings


class Service:
    """Everything behind the routes."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.storage = Storage(storage_root(settings.storage))
        self.metrics = ServiceMetrics()
        self.index = InitializationIndex(settings.storage, settings.folder / "cache")
        self.datasets = DatasetCatalog(settings.data_root)
        url = find_cluster(settings.address) if settings.address else None
        self.ray = RayJobs(url, cluster_token() if url else None)
        self.head = None if url else RayHead(settings.folder, self.ray)
        database = open_database(settings.database_url)
        self.store, self.leadership = JobStore(database), Leadership(database)
        self.pool = WorkerPool(settings, self.store, self.ray, self.storage)
        self.dispatcher = Dispatcher(settings, self.store, self.pool, self.storage, self.metrics, self.leadership)
        if self.head:
            self.dispatcher.before_turn = self.head.ensure
        self.models: OrderedDict[str, Any] = OrderedDict()  # fine-tuned models by checksum, for predictions
        self.streams = 0
        self.closing = asyncio.Event()
        self._turning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self.index.refresh)
        self._turning = asyncio.create_task(self.dispatcher.run())

    @property
    def dispatches(self) -> bool:
        return self._turning is not None and not self._turning.done()

    async def close(self) -> None:
        self.closing.set()
        if self._turning:
            self._turning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._turning
        await self.pool.close()
        if self.head:
            await asyncio.to_thread(self.head.stop)
        elif self.leadership.leads:
            await asyncio.to_thread(self.pool.send_away_idle)
        await asyncio.to_thread(self.leadership.release)
        await self.ray.close()
        self.store.close()


async def service_of(request: Request) -> Service:
    """The service that a request belongs to; a dependency of the routes (async, for others cost a thread each)."""
    service: Service = request.app.state.service
    return service
