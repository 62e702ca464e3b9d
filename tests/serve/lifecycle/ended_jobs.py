"""Jobs that have ended, without a dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
from sqlalchemy import update

from rayctsl.jobs.contracts import Outcome
from rayctsl.jobs.files import SPEC, job_folder
from rayctsl.jobs.job import run_job
from serve.jobs.rows import JobRow
from serve.jobs.tables import JOBS, open_database
from serve.retention import DAY
from serve.service import Service

Ask = Callable[..., httpx.Response]


def finished(inside: Service, ask: Ask, steps: int = 2, **body: object) -> JobRow:
    """A job that a worker has really run, as the dispatcher would have it written down."""
    answer = ask("POST", "/finetune", json={"dataset": "stripes", "steps": steps, "batch_size": 8, **body})
    job = inside.store.get(answer.json()["id"])
    assert job is not None, answer.text
    folder = inside.storage.inside(job_folder(job.id))
    folder.write(SPEC, job.spec.to_bytes())
    outcome: Outcome = run_job(folder, 1)
    assert inside.store.change(job, status="starting", attempt=1)
    job = inside.store.get(job.id)
    assert job is not None
    now = time.time()
    inside.store.change(job, status=outcome.status, result=outcome.result, started_at=now, finished_at=now)
    return inside.store.get(job.id) or job


def grown_old(inside: Service, job: JobRow, days: float) -> None:
    with open_database(inside.settings.database_url).begin() as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(finished_at=time.time() - days * DAY))
