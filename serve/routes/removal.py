"""Deleting what has ended: a job, its model, many jobs at once, a comparison."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from rayctsl.jobs.contracts import EndStatus
from serve.comparisons import rows_of
from serve.jobs.rows import JobRow
from serve.problems import HttpProblem, documented
from serve.routes.comparisons import ComparisonId, find_comparison
from serve.routes.lookup import Here, JobId, own_job
from serve.service import caller_of

router = APIRouter(tags=["life cycle"])
MOST = 1000


class Deleted(BaseModel):
    deleted: list[str] = Field(description="Ids of the jobs that are gone")
    has_more: bool = Field(description="Whether others match; ask again")


@router.delete(
    "/finetune/{id}",
    status_code=204,
    operation_id="delete_job",
    response_class=Response,
    responses=documented(404, 409, 422),
)
def delete_job(service: Here, request: Request, id: JobId) -> Response:
    """Delete a job that has ended, with its model, log and events."""
    service.removal.job(_ended(own_job(service, request, id)))
    return Response(status_code=204)


@router.delete(
    "/finetune/{id}/weights",
    status_code=204,
    operation_id="delete_model",
    response_class=Response,
    responses=documented(404, 409, 422),
)
def delete_model(service: Here, request: Request, id: JobId) -> Response:
    """Delete a job's model alone; its result, curves and log stay."""
    service.removal.model(_ended(own_job(service, request, id)))
    return Response(status_code=204)


@router.delete("/finetune", operation_id="delete_jobs", responses=documented(422))
def delete_jobs(
    service: Here,
    request: Request,
    status: Annotated[EndStatus, Query(description="Only jobs that ended so")],
    days: Annotated[float, Query(ge=0, le=100_000, description="Only jobs that ended so many days ago")] = 0.0,
) -> Deleted:
    """Delete many of one's own jobs that have ended."""
    caller = caller_of(request)
    found = service.store.ended_before(time.time() - 86400 * days, MOST + 1, status=status, owner=caller.name)
    for job in found[:MOST]:
        service.removal.job(job)
    return Deleted(deleted=[job.id for job in found[:MOST]], has_more=len(found) > MOST)


@router.delete(
    "/comparisons/{id}",
    status_code=204,
    operation_id="delete_comparison",
    response_class=Response,
    responses=documented(404, 409, 422),
)
def delete_comparison(service: Here, request: Request, id: ComparisonId) -> Response:
    """Delete a comparison that has ended, and its jobs with it."""
    comparison = find_comparison(service, request, id)
    (rows,) = rows_of(service.store, [comparison])
    for job in [_ended(row) for of in rows.values() for row in of if row]:
        service.removal.job(job)
    service.comparisons.delete(comparison)
    return Response(status_code=204)


def _ended(job: JobRow) -> JobRow:
    if not job.ended:
        raise HttpProblem(409, f"Job {job.id} is {job.status}: cancel it first.", "job-not-ended")
    return job
