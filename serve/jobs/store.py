"""The durable list of jobs. Every change is a compare-and-set, so that no race and no crash gives a job two states."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Unpack

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select, update

from rayctsl.contract import JsonObject
from serve.jobs.rows import (
    ACTIVE,
    FIELDS,
    TERMINAL,
    JobChange,
    JobRow,
    KeyReusedError,
    NewJob,
    QueueFullError,
    QueueLimits,
    QuotaError,
    ShareFullError,
    Slot,
    Visible,
    read_row,
)
from serve.jobs.tables import GATE, JOBS, SLOTS, SPENT, WEBHOOKS

DAY = 86400.0
AT_ONCE = 1000  # ids in one question


class JobStore:
    """Jobs and worker slots in a database."""

    def __init__(self, engine: Engine):
        self._engine = engine

    def close(self) -> None:
        self._engine.dispose()

    def create(self, new: NewJob, **limits: Unpack[QueueLimits]) -> tuple[JobRow, bool]:
        """Accept a job, or find the one that the same key made; the bool says that it is new."""
        with self._writing() as connection:
            connection.execute(select(GATE.c.id).with_for_update())
            if (earlier := _find_key(connection, new.fingerprint, new.key, new.owner)) is not None:
                return earlier, False
            _check_room(connection, new.owner, 1, **limits)
            return _insert(connection, new), True

    def create_all(self, asked: Sequence[NewJob], **limits: Unpack[QueueLimits]) -> list[JobRow]:
        """Accept all jobs of one owner, in this order, or none: what is refused leaves no trace."""
        with self._writing() as connection:
            connection.execute(select(GATE.c.id).with_for_update())
            _check_room(connection, asked[0].owner, len(asked), **limits)
            return [_insert(connection, new) for new in asked]

    def find_key(self, fingerprint: str, key: str | None, owner: str | None = None) -> JobRow | None:
        """The job that the same key made."""
        with self._engine.connect() as connection:
            return _find_key(connection, fingerprint, key, owner)

    def get(self, job_id: str) -> JobRow | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(*FIELDS).where(JOBS.c.id == job_id)).first()
            return read_row(row) if row else None

    def get_many(self, job_ids: Sequence[str]) -> list[JobRow]:
        """Those that there are, in no order."""
        found: list[JobRow] = []
        with self._engine.connect() as connection:
            for start in range(0, len(job_ids), AT_ONCE):
                query = select(*FIELDS).where(JOBS.c.id.in_(job_ids[start : start + AT_ONCE]))
                found += [read_row(row) for row in connection.execute(query)]
        return found

    def page(
        self,
        limit: int,
        after: JobRow | None = None,
        status: str | None = None,
        initialization: str | None = None,
        only: Visible | None = None,
    ) -> list[JobRow]:
        """The newest jobs first, from the one after `after` on."""
        query = select(*FIELDS).order_by(JOBS.c.number.desc()).limit(limit)
        if only is not None:
            query = query.where(_visible(only))
        if after is not None:
            query = query.where(JOBS.c.number < after.number)
        if status is not None:
            query = query.where(JOBS.c.status == status)
        if initialization is not None:
            query = query.where(JOBS.c.spec["initialization"]["id"].as_string() == initialization)
        with self._engine.connect() as connection:
            return [read_row(row) for row in connection.execute(query)]

    def queued(self, limit: int) -> list[JobRow]:
        """The jobs to run next."""
        query = select(*FIELDS).where(JOBS.c.status == "queued").order_by(JOBS.c.number).limit(limit)
        with self._engine.connect() as connection:
            return [read_row(row) for row in connection.execute(query)]

    def active(self) -> list[JobRow]:
        """The jobs that a worker has."""
        query = select(*FIELDS).where(JOBS.c.status.in_(ACTIVE)).order_by(JOBS.c.number)
        with self._engine.connect() as connection:
            return [read_row(row) for row in connection.execute(query)]

    def delete(self, job: JobRow) -> None:
        """Forget a job that has ended, with whoever was to be told of it."""
        with self._writing() as connection:
            connection.execute(delete(WEBHOOKS).where(WEBHOOKS.c.job == job.id))
            gone = connection.execute(delete(JOBS).where(JOBS.c.id == job.id, JOBS.c.status.in_(TERMINAL)))
            connection.execute(delete(SPENT).where(SPENT.c.created_at < time.time() - DAY))
            if gone.rowcount and job.created_at > time.time() - DAY:
                connection.execute(insert(SPENT).values(job=job.id, owner=job.owner, created_at=job.created_at))

    def ended_before(
        self,
        moment: float,
        limit: int,
        *,
        with_model: bool = False,
        status: str | None = None,
        owner: str | None = None,
    ) -> list[JobRow]:
        """The jobs that ended longest ago; only one owner's when one is named."""
        wanted = (status,) if status is not None else TERMINAL
        query = select(*FIELDS).where(JOBS.c.status.in_(wanted), JOBS.c.finished_at <= moment)
        if owner is not None:
            query = query.where(JOBS.c.owner == owner)
        if with_model:
            query = query.where(JOBS.c.status == "succeeded", JOBS.c.model_deleted_at.is_(None))
        with self._engine.connect() as connection:
            return [read_row(row) for row in connection.execute(query.order_by(JOBS.c.number).limit(limit))]

    def last_use(self, stored: str) -> float | None:
        """When a job on this dataset was last asked for."""
        query = select(func.max(JOBS.c.created_at)).where(JOBS.c.spec["dataset"].as_string() == stored)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def needs_dataset(self, stored: str) -> bool:
        """Whether a job that has not ended reads this dataset."""
        uses = JOBS.c.spec["dataset"].as_string() == stored
        query = select(JOBS.c.id).where(JOBS.c.status.not_in(TERMINAL) & uses).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def finished(self, limit: int) -> list[JobRow]:
        """The jobs that succeeded last."""
        query = select(*FIELDS).where(JOBS.c.status == "succeeded").order_by(JOBS.c.number.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [read_row(row) for row in connection.execute(query)]

    def with_model(self, dataset: str | None, *, best: bool, only: Visible | None = None) -> JobRow | None:
        """The newest job whose model is there, or the one with the highest accuracy; on one dataset if it is named."""
        query = select(*FIELDS).where(JOBS.c.status == "succeeded", JOBS.c.model_deleted_at.is_(None)).limit(1)
        if dataset is not None:
            query = query.where(JOBS.c.spec["dataset"].as_string() == dataset)
        if only is not None:
            query = query.where(_visible(only))
        if best:
            query = query.order_by(JOBS.c.result["accuracy"].as_float().desc())
        with self._engine.connect() as connection:
            row = connection.execute(query.order_by(JOBS.c.number.desc())).first()
            return read_row(row) if row else None

    def counts(self) -> dict[str, int]:
        with self._engine.connect() as connection:
            rows = connection.execute(select(JOBS.c.status, func.count()).group_by(JOBS.c.status))
            return {str(row[0]): int(row[1]) for row in rows}

    def change(self, job: JobRow, **values: Unpack[JobChange]) -> bool:
        """Change a job if nobody has given it another status or attempt since it was read."""
        condition = (JOBS.c.id == job.id) & (JOBS.c.status == job.status) & (JOBS.c.attempt == job.attempt)
        columns: JsonObject = dict(values)
        for name in ("result", "error"):
            if columns.get(name) is not None:
                columns[name] = columns[name].model_dump(mode="json")
        with self._writing() as connection:
            return connection.execute(update(JOBS).where(condition).values(**columns)).rowcount == 1

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


def _check_room(
    connection: Connection,
    owner: str | None,
    jobs: int,
    *,
    max_queued: int,
    max_share: int | None = None,
    max_per_day: int | None = None,
) -> None:
    """Whether so many more jobs of an owner are within the limits; asked behind the gate."""
    queued = select(func.count()).where(JOBS.c.status == "queued")
    own = queued.where(JOBS.c.owner == owner)
    if max_share is not None and connection.execute(own).scalar_one() + jobs > max_share:
        raise ShareFullError
    if max_per_day is not None and _asked_today(connection, owner) + jobs > max_per_day:
        raise QuotaError
    if connection.execute(queued).scalar_one() + jobs > max_queued:
        raise QueueFullError


def _insert(connection: Connection, new: NewJob) -> JobRow:
    values = {
        "id": f"ft-{secrets.token_hex(8)}",
        "status": "queued",
        "request": dict(new.request),
        "spec": new.spec.to_json(),
        "fingerprint": new.fingerprint,
        "idempotency_key": _scoped(new.key, new.owner),
        "owner": new.owner,
        "created_at": round(time.time(), 3),
    }
    connection.execute(insert(JOBS).values(values))
    if new.webhook is not None:
        url, secret = new.webhook
        waiting = {"job": values["id"], "url": url, "secret": secret, "status": "waiting"}
        connection.execute(insert(WEBHOOKS).values(waiting))
    query = select(*FIELDS).where(JOBS.c.id == values["id"])
    return read_row(connection.execute(query).one())


def _asked_today(connection: Connection, owner: str | None) -> int:
    counts = (
        select(func.count()).where(table.c.owner == owner, table.c.created_at > time.time() - DAY)
        for table in (JOBS, SPENT)
    )
    return sum(connection.execute(count).scalar_one() for count in counts)


def _visible(only: Visible) -> ColumnElement[bool]:
    public = JOBS.c.spec["dataset"].as_string().not_like(f"%{only.private_mark}%")
    return public if only.owner is None else public | (JOBS.c.owner == only.owner)


def _scoped(key: str | None, owner: str | None) -> str | None:
    """Two callers may choose the same Idempotency-Key without knowing of each other."""
    return f"{owner}:{key}" if key is not None and owner is not None else key


def _find_key(connection: Connection, fingerprint: str, key: str | None, owner: str | None) -> JobRow | None:
    if key is None:
        return None
    query = select(*FIELDS, JOBS.c.fingerprint).where(JOBS.c.idempotency_key == _scoped(key, owner))
    row = connection.execute(query).first()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        raise KeyReusedError
    return read_row(row)
