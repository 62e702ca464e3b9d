"""The workers: at most N, each a long-lived Ray job that runs one fine-tuning job after the other.

Who lives is told by the worker's own counter in `alive.json`; Ray is asked only about workers that do not show it. A
worker counts as dead when its counter stands still and Ray says that it has ended or does not know it.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rayctsl.jobs.contracts import Assignment, Heartbeat
from rayctsl.jobs.files import ALIVE, ASSIGNMENT, BEAT_SECONDS, read_document, worker_folder
from rayctsl.storage import Storage
from serve.house import House
from serve.jobs.rows import Slot
from serve.jobs.store import JobStore
from serve.problems import log
from serve.ray_jobs import ENDED, RayJobs, RayUnreachableError
from serve.settings import Settings, is_loopback

FRESH_SECONDS = 4 * BEAT_SECONDS
HUNG_SECONDS = 120.0
ASK_SECONDS = 3.0
MAX_DELAY_SECONDS = 60.0
KEPT_GENERATIONS = 3
WATCH_SECONDS = 1.0
MUTE = (
    "workers start on the cluster but show no sign of life in the service's storage; "
    "is the same storage mounted there, at the same path, and writable?"
)


@dataclass(frozen=True)
class Pulse:
    """A worker's counter as last seen, since when, on this process's clock, and whether it was seen to move."""

    count: int
    moves: bool = False
    since: float = field(default_factory=lambda: time.monotonic())

    @property
    def is_beating(self) -> bool:
        """A counter found by a new service may be a dead worker's: it must move, or have just begun."""
        return (self.moves or self.count <= 2) and time.monotonic() - self.since < FRESH_SECONDS


class WorkerPool:
    """Keeps the right number of workers, and knows which are alive."""

    def __init__(self, settings: Settings, store: JobStore, ray: RayJobs, storage: Storage, house: House):
        self.settings, self.store, self.ray, self.storage = settings, store, ray, storage
        self._inside = house.run
        self.alive: list[str] = []  # show their counter
        self.dead: set[str] = set()  # ended, their jobs to be released
        self.up = False
        self.mute = ""  # why workers run without a sign of life, or nothing
        self._born: dict[str, float] = {}  # when a worker without a sign of life was first seen to run
        self._pulses: dict[str, Pulse] = {}
        self._slots: list[Slot] = []
        self._submissions: set[asyncio.Task[None]] = set()
        self._failures, self._not_before, self._asked = 0, 0.0, 0.0

    async def look(self) -> None:
        """Find out who is alive, who is dead, and whether Ray answers."""
        self._slots = await self._inside(self.store.slots)
        names = [slot.worker for slot in self._slots if slot.worker]
        await self._inside(self._look_at, names)
        self.alive = [name for name in names if name in self._pulses and self._pulses[name].is_beating]
        self.dead = set()
        if self.alive:
            self._failures, self.mute = 0, ""
        try:
            coming = {task.get_name() for task in self._submissions}
            silent = [name for name in names if name not in coming and self.is_silent(name, FRESH_SECONDS)]
            for name in silent:
                if await self._has_ended(name):
                    self.dead.add(name)
            if silent:
                self.up = True  # it has just answered
            elif not self.up or time.monotonic() - self._asked > ASK_SECONDS:
                self.up, self._asked = await self.ray.is_up(), time.monotonic()
        except RayUnreachableError:
            self.up = False

    async def clear_dead(self) -> None:
        """Free the slots of dead workers, whose jobs must have been released before."""
        for slot in self._slots:
            if slot.worker in self.dead:
                if slot.worker not in self._pulses:
                    self._wait_longer()  # it never lived: something is wrong with the cluster or the environment
                await self._inside(self.store.set_worker, slot, slot.generation, None)
                await self._inside(self._forget, slot)

    async def grow(self, wanted: int) -> None:
        """Start workers until as many as wanted live or are about to."""
        slots = [slot for slot in await self._inside(self.store.slots) if slot.slot < self.settings.max_running]
        there = sum(slot.worker is not None for slot in slots)
        for slot in slots:
            if not self.up or there >= min(wanted, len(slots)) or time.monotonic() < self._not_before:
                return
            if slot.worker is None:
                generation = slot.generation + 1
                name = self._name(slot.slot, generation)
                if await self._inside(self.store.set_worker, slot, generation, name):
                    # In the background: a busy head takes long, and finished jobs should not wait for it.
                    task = asyncio.create_task(self._submit(name), name=name)
                    self._submissions.add(task)
                    task.add_done_callback(self._submissions.discard)
                    there += 1

    def assign(self, worker: str, job_id: str, attempt: int) -> None:
        """Tell a worker what to do next; saying it twice does no harm."""
        self._write_assignment(worker, Assignment(job=job_id, attempt=attempt))

    async def close(self) -> None:
        for task in self._submissions:
            task.cancel()
        await asyncio.gather(*self._submissions, return_exceptions=True)

    def send_away_idle(self) -> None:
        """Let workers without a job leave a cluster that others use too; those with one go on without us."""
        busy = {job.worker for job in self.store.active()}
        for name in self.alive:
            if name not in busy:
                self._write_assignment(name, Assignment(job=None))

    def _write_assignment(self, worker: str, assignment: Assignment) -> None:
        self.storage.write(f"{worker_folder(worker)}/{ASSIGNMENT}", assignment.to_bytes())

    def knows(self, worker: str | None) -> bool:
        return any(slot.worker == worker for slot in self._slots)

    def is_silent(self, worker: str | None, seconds: float) -> bool:
        pulse = self._pulses.get(worker or "")
        return pulse is None or time.monotonic() - pulse.since > seconds

    def _look_at(self, names: list[str]) -> None:
        for name in names:
            alive = read_document(self.storage, f"{worker_folder(name)}/{ALIVE}", Heartbeat)
            if alive is not None and name not in self._pulses:
                self._pulses[name] = Pulse(alive.count)
            elif alive is not None and alive.count != self._pulses[name].count:
                self._pulses[name] = Pulse(alive.count, moves=True)

    async def _has_ended(self, name: str) -> bool:
        status = await self.ray.status(name)
        if status is None or status in ENDED:
            return True
        if name not in self._pulses and status == "RUNNING" and self._has_been_mute(name):
            self.mute = MUTE
            log.error("worker %s: %s", name, MUTE)
            await self.ray.stop(name)
            return True
        if name in self._pulses and self.is_silent(name, HUNG_SECONDS):
            log.warning("worker %s has been silent for %.0f s: stopping it", name, HUNG_SECONDS)
            await self.ray.stop(name)
        return False

    def _has_been_mute(self, name: str) -> bool:
        first = self._born.setdefault(name, time.monotonic())
        return time.monotonic() - first > self.settings.worker_start_seconds

    async def watch(self) -> None:
        """Ask every second whether the cluster answers, whatever else takes long."""
        while True:
            self.up = await self.ray.is_up(WATCH_SECONDS)
            await asyncio.sleep(WATCH_SECONDS)

    async def _submit(self, name: str) -> None:
        settings = self.settings
        # Only what the operator chose goes into the command; what users ask for travels in the job's spec file.
        words = [self._python(), "-m", "rayctsl.jobs.worker", "--storage", str(self.storage)]
        words += ["--worker", name, "--idle-seconds", f"{settings.worker_idle_seconds:g}"]
        words += ["--checkpoint-seconds", f"{settings.checkpoint_seconds:g}"]
        words += [
            "--limit-seconds",
            f"{settings.job_limit_seconds:g}",
            "--threads",
            f"{max(1, int(settings.job_cpus))}",
            "--gpus",
            f"{settings.job_gpus:g}",
        ]
        try:
            await self.ray.submit(name, shlex.join(words), settings.job_cpus, settings.job_gpus, {})
        except RayUnreachableError as error:
            log.warning("no worker could be started: %s", error)
            self._wait_longer()

    def _python(self) -> str:
        """On this machine the environment is ours; elsewhere it is whatever the cluster has."""
        return sys.executable if is_loopback(urlsplit(self.ray.url or "").hostname or "") else "python"

    def _wait_longer(self) -> None:
        self._failures += 1
        self._not_before = time.monotonic() + min(MAX_DELAY_SECONDS, 2.0 ** (self._failures - 1))

    def _forget(self, slot: Slot) -> None:
        """Send the worker away, should it come to life after all, and remove what older ones have left."""
        assert slot.worker is not None
        self._pulses.pop(slot.worker, None)
        self._born.pop(slot.worker, None)
        self._write_assignment(slot.worker, Assignment(job=None))
        old = worker_folder(self._name(slot.slot, slot.generation - KEPT_GENERATIONS))
        if self.storage.exists(old):
            self.storage.delete_folder(old)

    def _name(self, slot: int, generation: int) -> str:
        return f"rayctsl-{self.settings.service_name}-{slot}-{generation}"
