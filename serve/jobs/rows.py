"""A job as the store gives it and takes it, and why it may refuse one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from sqlalchemy import Row

from rayctsl.jobs.contracts import Failure, JobSpec, Result, Status, read_spec
from serve.jobs.tables import JOBS

ACTIVE = ("starting", "running", "cancelling")
TERMINAL = ("succeeded", "failed", "cancelled")


class QueueFullError(Exception):
    """As many jobs wait as may."""


class ShareFullError(Exception):
    """As many jobs of one key wait as may."""


class QuotaError(Exception):
    """As many jobs of one key were asked for today as may be."""


class KeyReusedError(Exception):
    """The idempotency key came before, with another request."""


@dataclass(frozen=True)
class JobRow:
    """One row of the store."""

    number: int
    id: str
    status: Status
    label: str
    owner: str | None  # the name of the API key that asked for it
    spec: JobSpec
    created_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    lost_attempts: int
    worker: str | None
    step: int
    result: Result | None
    error: Failure | None
    model_deleted_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


class JobChange(TypedDict, total=False):
    """Columns that change while a job lives."""

    status: str
    started_at: float | None
    finished_at: float | None
    attempt: int
    lost_attempts: int
    worker: str | None
    step: int
    result: Result | None
    error: Failure | None
    model_deleted_at: float | None


@dataclass(frozen=True)
class NewJob:
    """A job that is asked for."""

    request: Mapping[str, object]
    spec: JobSpec
    fingerprint: str
    key: str | None = None  # the client's Idempotency-Key
    owner: str | None = None
    webhook: tuple[str, str] | None = None  # address and secret of whoever is to be told of the end


class QueueLimits(TypedDict):
    """What bounds the jobs that are accepted."""

    max_queued: int
    max_share: NotRequired[int | None]  # jobs of one owner that may wait
    max_per_day: NotRequired[int | None]  # that it may ask for in 24 hours


@dataclass(frozen=True)
class Slot:
    """One of the places for a worker; each new worker of a slot has the next generation."""

    slot: int
    generation: int
    worker: str | None


@dataclass(frozen=True)
class Visible:
    """The jobs that a key may see: its own, and those on datasets without a private mark."""

    owner: str | None
    private_mark: str


NAMES = [name for name in JobRow.__dataclass_fields__ if name != "label"]
FIELDS = [JOBS.c.request, *(JOBS.c[name] for name in NAMES)]


def read_row(row: Row) -> JobRow:
    values = {name: getattr(row, name) for name in NAMES}
    values["spec"] = read_spec(row.spec)
    values["result"] = Result.model_validate(row.result) if row.result is not None else None
    values["error"] = Failure.model_validate(row.error) if row.error is not None else None
    return JobRow(label=str(row.request.get("label", "")), **values)
