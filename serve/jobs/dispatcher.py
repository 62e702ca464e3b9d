"""The loop that moves jobs: queued -> starting -> running -> their end, as the files of the job folders tell.

Of several services on one database only the leader moves jobs; the others look on, ready to take over.

Every turn looks at the store and the files afresh and does what is missing, so a turn that is cut off anywhere, even
by kill -9, is made good by the next one: the same code is dispatcher, reconciler and recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from rayctsl.jobs.contracts import Failure, Outcome, Result, StepProgress
from rayctsl.jobs.files import CANCEL, PROGRESS, RESULT, SPEC, attempt_folder, job_folder, read_document
from rayctsl.storage import Storage
from rayctsl.words import one_line
from serve.house import House
from serve.jobs.leader import Leadership
from serve.jobs.pool import WorkerPool
from serve.jobs.rows import JobRow
from serve.jobs.store import JobStore
from serve.metrics import ServiceMetrics
from serve.problems import FULL, is_full_disk, log
from serve.settings import Settings

TURN_SECONDS = 0.5
GIVE_UP_SECONDS = 30.0


class Dispatcher:
    """Runs jobs of the store on the workers of the pool."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        pool: WorkerPool,
        storage: Storage,
        metrics: ServiceMetrics,
        leadership: Leadership,
        house: House,
    ):
        self.settings, self.store, self.pool, self.storage, self.metrics = settings, store, pool, storage, metrics
        self.leadership, self._inside = leadership, house.run
        self.before_turn: Callable[[], None] | None = None  # starts a cluster of our own when it is gone
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._trouble = ""  # what the last turn failed with
        self._told: dict[str, int] = {}  # attempts whose worker has been told by this process

    async def run(self) -> None:
        """Turn for ever."""
        self._loop = asyncio.get_running_loop()
        await self._inside(self.store.add_slots, self.settings.max_running)
        while True:
            try:
                if await self._inside(self.leadership.held):
                    self._prepare()
                    await self.turn()
                else:
                    self._told.clear()
                    await self.pool.look()
                await self._inside(self._show)
                self._say("")
            except Exception as error:
                self._say(FULL if is_full_disk(error) else one_line(error, 300), error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), TURN_SECONDS)
            self._news.clear()

    def hurry(self) -> None:
        """Take the next turn now; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    @property
    def trouble(self) -> str:
        """Why turns fail, or nothing."""
        return self._trouble

    def _say(self, trouble: str, error: Exception | None = None) -> None:
        """A fault that stays is told once, not twice a second."""
        if trouble and trouble != self._trouble:
            details = None if trouble == FULL else error
            log.error("a turn of the dispatcher failed; the next ones try again: %s", trouble, exc_info=details)
        elif self._trouble and not trouble:
            log.info("the dispatcher's turns go through again")
        self._trouble = trouble

    def _prepare(self) -> None:
        """Starting a cluster takes long: meanwhile turns go on, and the probes tell that it is not there yet."""
        if self.before_turn is None or (self._preparing is not None and not self._preparing.done()):
            return
        if self._preparing is not None and (error := self._preparing.exception()) is not None:
            log.error("no cluster could be started: %s", one_line(error, 300))
        self._preparing = asyncio.create_task(self._inside(self.before_turn))

    async def turn(self) -> None:
        for job in await self._inside(self.store.active):
            await self._inside(self._collect, job)
        await self.pool.look()
        for job in await self._inside(self.store.active):
            if self._is_lost(job):
                await self._inside(self._release, job)
            else:
                await self._inside(self._tell, job)
        await self.pool.clear_dead()
        if self.pool.mute:
            await self._inside(self._fail_waiting, self.pool.mute)
        await self._inside(self._assign, await self._inside(self.store.active))
        waiting = await self._inside(self.store.queued, self.settings.max_running)
        active = await self._inside(self.store.active)
        await self.pool.grow(max(len(active) + len(waiting), self.settings.warm_workers))

    def _fail_waiting(self, reason: str) -> None:
        """Workers run but nothing of theirs arrives: who waits for them would wait for ever, in silence."""
        for job in self.store.queued(self.settings.max_queued):
            if time.time() - job.created_at > self.settings.worker_start_seconds:
                self._end(job, "failed", error=Failure(code="storage_unreachable", message=reason))

    def _show(self) -> None:
        self.metrics.ray_up.set(self.pool.up)
        self.metrics.dispatcher_up.set(self.leadership.leads)
        self.metrics.queue_limit.set(self.settings.max_queued)
        self.metrics.show_jobs(self.store.counts())

    def _folder(self, job: JobRow) -> Storage:
        return self.storage.inside(job_folder(job.id))

    def _collect(self, job: JobRow) -> bool:
        """Take over what the job's own files say; True when it has ended."""
        here = self._folder(job).inside(attempt_folder(job.attempt))
        outcome = read_document(here, RESULT, Outcome)
        if outcome is not None:
            return self._end(job, outcome.status, outcome.result, outcome.error)
        progress = read_document(here, PROGRESS, StepProgress)
        if progress is not None and (job.status == "starting" or progress.step != job.step):
            status = "running" if job.status == "starting" else job.status
            started = job.started_at or round(time.time(), 3)
            self.store.change(job, status=status, step=progress.step, started_at=started)
        return False

    def _end(self, job: JobRow, status: str, result: Result | None = None, error: Failure | None = None) -> bool:
        now = round(time.time(), 3)
        step = job.spec.config.steps if status == "succeeded" else job.step
        started = job.started_at or (now if job.status != "queued" else None)
        if not self.store.change(
            job, status=status, result=result, error=error, finished_at=now, started_at=started, step=step
        ):
            return False
        self._told.pop(job.id, None)
        self.metrics.job_seconds.labels(status).observe(now - (started or now))
        return True

    def _is_lost(self, job: JobRow) -> bool:
        if job.worker in self.pool.dead or not self.pool.knows(job.worker):
            return True
        # With the cluster gone nobody will ever say that a silent worker has ended; a cancel need not wait for it.
        return job.status == "cancelling" and not self.pool.up and self.pool.is_silent(job.worker, GIVE_UP_SECONDS)

    def _release(self, job: JobRow) -> None:
        """The worker has died: the job waits again, and goes on from its last checkpoint."""
        if self._collect(job):  # it may have ended just before its worker did
            return
        job = self.store.get(job.id) or job
        began = self._folder(job).exists(f"{attempt_folder(job.attempt)}/{PROGRESS}")
        lost = job.lost_attempts + began
        log.warning("job %s lost worker %s in attempt %d", job.id, job.worker, job.attempt)
        if job.status == "cancelling":
            self._end(job, "cancelled")
        elif lost >= self.settings.max_attempts:
            message = f"its worker died in {lost} attempts; the cluster's log of the worker says why"
            self._end(job, "failed", error=Failure(code="worker_lost", message=message))
        elif not job.ended:
            self.store.change(job, status="queued", worker=None, lost_attempts=lost)

    def _assign(self, active: list[JobRow]) -> None:
        busy = {job.worker for job in active}
        free = [name for name in self.pool.alive if name not in busy and name not in self.pool.dead]
        room = self.settings.max_running - len(active)
        for job, worker in zip(self.store.queued(max(0, min(len(free), room))), free, strict=False):
            if self.store.change(job, status="starting", worker=worker, attempt=job.attempt + 1):
                self._tell(self.store.get(job.id) or job)

    def _tell(self, job: JobRow) -> None:
        """Write what the worker needs, if this process has not done so: the one before may have died in between."""
        if job.ended or job.worker is None:
            return
        folder = self._folder(job)
        if self._told.get(job.id) != job.attempt:
            if not folder.exists(SPEC):
                folder.write(SPEC, job.spec.to_bytes())
            self.pool.assign(job.worker, job.id, job.attempt)
            self._told[job.id] = job.attempt
        if job.status == "cancelling" and not folder.exists(CANCEL):
            folder.write(CANCEL, b"")
