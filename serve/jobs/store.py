"""The durable list of jobs. Every change is a compare-and-set, so that no race and no crash gives a job two states."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select, update

from serve.jobs.tables import GATE, JOBS, SLOTS

ACTIVE = ("starting", "running", "cancelling")
TERMINAL = ("succeeded", "failed", "cancelled")
STATUSES = ("queued", *ACTIVE, *TERMINAL)


class QueueFullError(Exception):
    """As many jobs wait as may."""


class KeyReusedError(Exception):
    """The idempotency key came before, with another request."""


@dataclass(frozen=True)
class Job:
    """One row of the store."""

    number: int
    id: str
    status: str
    request: dict[str, Any]
    spec: dict[str, Any]
    created_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    lost_attempts: int
    worker: str | None
    step: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True)
class Slot:
    """One of the places for a worker; each new worker of a slot has the next generation."""

    slot: int
    generation: int
    worker: str | None


FIELDS = [JOBS.c[name] for name in Job.__dataclass_fields__]


class JobStore:
    """Jobs and worker slots in a database."""

    def __init__(self, engine: Engine):
        self._engine = engine

    def close(self) -> None:
        self._engine.dispose()

    def create(
        self,
        request: Mapping[str, Any],
        spec: Mapping[str, Any],
        *,
        fingerprint: str,
        key: str | None,
        max_queued: int,
    ) -> tuple[Job, bool]:
        """Accept a job, or find the one that the same key made; the bool says that it is new."""
        with self._writing() as connection:
            connection.execute(select(GATE.c.id).with_for_update())
            if key is not None:
                query = select(*FIELDS, JOBS.c.fingerprint).where(JOBS.c.idempotency_key == key)
                if earlier := connection.execute(query).first():
                    if earlier.fingerprint != fingerprint:
                        raise KeyReusedError
                    return _job(earlier), False
            waiting = connection.execute(select(func.count()).where(JOBS.c.status == "queued")).scalar_one()
            if waiting >= max_queued:
                raise QueueFullError
            values = {
                "id": f"ft-{secrets.token_hex(8)}",
                "status": "queued",
                "request": dict(request),
                "spec": dict(spec),
                "fingerprint": fingerprint,
                "idempotency_key": key,
                "created_at": round(time.time(), 3),
            }
            connection.execute(insert(JOBS).values(values))
            query = select(*FIELDS).where(JOBS.c.id == values["id"])
            return _job(connection.execute(query).one()), True

    def find_key(self, key: str, fingerprint: str) -> Job | None:
        """The job that this key made."""
        with self._engine.connect() as connection:
            query = select(*FIELDS, JOBS.c.fingerprint).where(JOBS.c.idempotency_key == key)
            row = connection.execute(query).first()
        if row is None:
            return None
        if row.fingerprint != fingerprint:
            raise KeyReusedError
        return _job(row)

    def get(self, job_id: str) -> Job | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(*FIELDS).where(JOBS.c.id == job_id)).first()
            return _job(row) if row else None

    def page(self, limit: int, after: Job | None = None, status: str | None = None) -> list[Job]:
        """The newest jobs first, from the one after `after` on."""
        query = select(*FIELDS).order_by(JOBS.c.number.desc()).limit(limit)
        if after is not None:
            query = query.where(JOBS.c.number < after.number)
        if status is not None:
            query = query.where(JOBS.c.status == status)
        with self._engine.connect() as connection:
            return [_job(row) for row in connection.execute(query)]

    def queued(self, limit: int) -> list[Job]:
        """The jobs to run next."""
        query = select(*FIELDS).where(JOBS.c.status == "queued").order_by(JOBS.c.number).limit(limit)
        with self._engine.connect() as connection:
            return [_job(row) for row in connection.execute(query)]

    def active(self) -> list[Job]:
        """The jobs that a worker has."""
        query = select(*FIELDS).where(JOBS.c.status.in_(ACTIVE)).order_by(JOBS.c.number)
        with self._engine.connect() as connection:
            return [_job(row) for row in connection.execute(query)]

    def counts(self) -> dict[str, int]:
        with self._engine.connect() as connection:
            rows = connection.execute(select(JOBS.c.status, func.count()).group_by(JOBS.c.status))
            return {str(row[0]): int(row[1]) for row in rows}

    def change(self, job: Job, **values: Any) -> bool:
        """Change a job if nobody has given it another status or attempt since it was read."""
        condition = (JOBS.c.id == job.id) & (JOBS.c.status == job.status) & (JOBS.c.attempt == job.attempt)
        with self._writing() as connection:
            return connection.execute(update(JOBS).where(condition).values(**values)).rowcount == 1

    def slots(self) -> list[Slot]:
        with self._engine.connect() as connection:
            return [Slot(*row) for row in connection.execute(select(SLOTS).order_by(SLOTS.c.slot))]

    def add_slots(self, count: int) -> None:
        """Make sure that slots 0..count-1 exist."""
        with self._writing() as connection:
            connection.execute(select(GATE.c.id).with_for_update())  # another service may start at the same moment
            there = set(connection.execute(select(SLOTS.c.slot)).scalars())
            for slot in set(range(count)) - there:
                connection.execute(insert(SLOTS).values(slot=slot, generation=0, worker=None))

    def set_worker(self, slot: Slot, generation: int, worker: str | None) -> bool:
        """Give a slot its next worker, or none, if it still is as it was read."""
        condition = (SLOTS.c.slot == slot.slot) & (SLOTS.c.generation == slot.generation)
        condition &= SLOTS.c.worker.is_(None) if slot.worker is None else SLOTS.c.worker == slot.worker
        with self._writing() as connection:
            values = {"generation": generation, "worker": worker}
            return connection.execute(update(SLOTS).where(condition).values(values)).rowcount == 1

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection


def _job(row: Any) -> Job:
    return Job(**{name: getattr(row, name) for name in Job.__dataclass_fields__})
