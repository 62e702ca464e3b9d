"""The job that a caller names, by its id or as `latest`, `latest@DATASET` or `best@DATASET`, if they may see it.

Jobs on a private dataset are their owner's and the admins'; the aliases stand for jobs that have a model.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from rayctsl.data.names import MARK
from serve.datasets import is_private
from serve.jobs.rows import JobRow, Visible
from serve.keys import Caller
from serve.problems import HttpProblem
from serve.schemas import JOB_ID
from serve.service import Service, caller_of, service_of

Here = Annotated[Service, Depends(service_of)]
JOB_NAME = r"^(ft-[0-9a-f]{16}|latest|(latest|best)@[a-z0-9][a-z0-9_-]{0,63}(@[0-9]{1,4})?)$"
JobId = Annotated[str, Path(pattern=JOB_ID, description="A job's id")]
JobName = Annotated[str, Path(pattern=JOB_NAME, description="A job's id, latest, latest@DATASET or best@DATASET")]


def visible_to(caller: Caller) -> Visible | None:
    """What of the job store a caller may see; None: all."""
    return None if caller.may("admin") else Visible(caller.name, MARK)


def find_job(service: Service, request: Request, name: str) -> JobRow:
    """A job to look at."""
    caller = caller_of(request)
    if name.startswith(("latest", "best")):
        return find_alias(service, caller, name)
    job = service.store.get(name)
    if job is None or (is_private(job.spec.dataset) and not caller.owns(job.owner)):
        raise HttpProblem(404, f"There is no job '{name}'.", "unknown-job")
    return job


def own_job(service: Service, request: Request, identifier: str) -> JobRow:
    """A job to change."""
    job = find_job(service, request, identifier)
    if not caller_of(request).owns(job.owner):
        raise HttpProblem(403, "Only the key that asked for a job, or an admin's, may change it.", "not-yours")
    return job


def find_alias(service: Service, caller: Caller, name: str) -> JobRow:
    kind, _, dataset = name.partition("@")
    stored = service.uploads.resolve(dataset, caller.name) if dataset else None
    job = service.store.with_model(stored, best=kind == "best", only=visible_to(caller))
    if job is None:
        where = f" on dataset '{dataset}'" if dataset else ""
        raise HttpProblem(404, f"No job{where} has a model yet.", "unknown-job")
    return job
