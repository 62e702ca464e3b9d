"""Fine-tuning jobs: ask for one, look at it, cancel it, fetch its weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import JSONResponse, Response

from rayctsl.data.roots import absolute_root
from rayctsl.jobs.contracts import JobSpec, Result, Source, Status
from rayctsl.jobs.files import MODEL, attempt_folder, job_folder
from rayctsl.storage import Storage, open_regular
from serve.files import FileAnswer
from serve.jobs.rows import (
    JobChange,
    JobRow,
    KeyReusedError,
    NewJob,
    QueueFullError,
    QueueLimits,
    QuotaError,
    ShareFullError,
)
from serve.jobs.view import dump_job, show_job
from serve.keys import Caller
from serve.problems import HttpProblem, documented
from serve.routes.initializations import LATEST, WEIGHTS_RESPONSES, Fresh, find_start
from serve.routes.lookup import Here, JobId, JobName, find_alias, find_job, own_job, visible_to
from serve.schemas import ID, JOB_ID, FinetuneRequest, Job, JobList, WebhookState
from serve.service import Service, caller_of
from serve.webhooks import RefusedAddressError, check_url

router = APIRouter(tags=["finetune"])
Key = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,128}$", description="Sent again with the same body, it finds the job instead of a second"
    ),
]
RETRY = {"retry-after": "15"}
JOB_LINKS = {
    name: {"operationId": operation, "parameters": {"id": "$response.body#/id"}}
    for name, operation in {
        "look": "get_job",
        "cancel": "cancel_job",
        "weights": "job_weights",
        "predict": "predict",
    }.items()
}


async def require_json(request: Request) -> None:
    """Other types are what a foreign page's form could send without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpProblem(415, "The body must be JSON: Content-Type: application/json.")


def prefix_of(request: Request) -> str:
    """Who came by /v1 is answered with paths under /v1."""
    return "/v1" if request.url.path.startswith("/v1/") else ""


@router.post(
    "/finetune",
    status_code=202,
    operation_id="create_job",
    responses={202: {"links": JOB_LINKS}, **documented(404, 409, 413, 415, 422, 429)},
    response_model=Job,
    dependencies=[Depends(require_json)],
)
def create_job(service: Fresh, request: Request, body: FinetuneRequest, idempotency_key: Key = None) -> Response:
    """Fine-tune an initialization on a dataset. The job waits for its turn, runs, and is never lost."""
    caller = caller_of(request)
    try:
        # Before anything else: what was accepted once stays accepted, even if its dataset has gone since.
        job = service.store.find_key(_fingerprint(body), idempotency_key, caller.name)
        new = job is None
        if job is None:
            job, new = accept(service, body, caller, idempotency_key)
    except KeyReusedError:
        raise HttpProblem(
            409, "This Idempotency-Key came before with another request.", "idempotency-key-reused"
        ) from None
    prefix = prefix_of(request)
    headers = {"location": f"{prefix}/finetune/{job.id}"}
    if not new:
        headers["idempotent-replay"] = "true"
    return JSONResponse(
        dump_job(show_job(job, prefix=prefix, predicted=service.forecast.seconds(job.spec))), 202, headers
    )


def accept(service: Service, body: FinetuneRequest, caller: Caller, key: str | None = None) -> tuple[JobRow, bool]:
    """Put a job into the queue, within its owner's share and quota, and wake the dispatcher."""
    asked = _build_job(service, body, caller, key)
    with _within_limits(service, caller) as limits:
        job, new = service.store.create(asked, **limits)
    service.hurry()
    return job, new


def accept_all(service: Service, bodies: Sequence[FinetuneRequest], caller: Caller) -> list[JobRow]:
    """The same for several jobs, all or none."""
    asked = [_build_job(service, body, caller) for body in bodies]
    with _within_limits(service, caller) as limits:
        jobs = service.store.create_all(asked, **limits)
    service.hurry()
    return jobs


def _build_job(service: Service, body: FinetuneRequest, caller: Caller, key: str | None = None) -> NewJob:
    spec = build_spec(service, body, caller)
    webhook = (body.webhook.url, body.webhook.secret) if body.webhook else None
    wanted = body.model_dump(mode="json", exclude={"webhook"})
    return NewJob(wanted, spec, _fingerprint(body), key, caller.name, webhook)


@contextlib.contextmanager
def _within_limits(service: Service, caller: Caller) -> Iterator[QueueLimits]:
    """The limits of a caller, and what it is told when they are reached."""
    try:
        yield {
            "max_queued": service.settings.max_queued,
            "max_share": caller.queue_share,
            "max_per_day": caller.jobs_per_day,
        }
    except QueueFullError:
        detail = f"{service.settings.max_queued} jobs are waiting already; try again later."
        raise HttpProblem(429, detail, "queue-full", RETRY) from None
    except ShareFullError:
        detail = f"{caller.queue_share} jobs of this key are waiting already; try again later."
        raise HttpProblem(429, detail, "share-full", RETRY) from None
    except QuotaError:
        detail = f"This key may ask for {caller.jobs_per_day} jobs in 24 hours; try again tomorrow."
        raise HttpProblem(429, detail, "quota-used", {"retry-after": "3600"}) from None


def _fingerprint(body: FinetuneRequest) -> str:
    # Without a webhook as it was before there were any: a repeated request is the same across releases.
    asked = body.model_dump(mode="json", exclude=None if body.webhook else {"webhook"})
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def build_spec(service: Service, body: FinetuneRequest, caller: Caller) -> JobSpec:
    """Everything that the worker needs, names looked up; nothing of it is a path or address from the request."""
    if body.steps > service.settings.max_steps:
        raise HttpProblem(422, f"Steps must be at most {service.settings.max_steps}.")
    if body.webhook is not None:
        _check_webhook(service, body.webhook.url)
    stored = service.uploads.resolve_ready(body.dataset, caller.name)
    dataset = service.datasets.require(stored)
    name = body.initialization or LATEST
    if name == "best" and name not in service.index.by_id:
        name = find_alias(service, caller, f"best@{body.dataset}").spec.initialization.id
    entry = find_start(service, name)
    source = Source(id=entry.id, sha256=entry.card.sha256, path=entry.initialization.path)
    return JobSpec(
        dataset=stored,
        data_root=absolute_root(service.settings.data_root),
        initialization=source,
        seed=body.seed,
        compare_with_scratch=body.compare_with_scratch,
        config=body.recipe(dataset.num_test),
    )


def _check_webhook(service: Service, url: str) -> None:
    if service.settings.webhooks == "off":
        raise HttpProblem(409, "webhook: the operator has switched webhooks off.", "webhook-refused")
    try:
        check_url(url, private=service.settings.webhooks == "any")
    except RefusedAddressError as error:
        raise HttpProblem(409, f"webhook.url: {error}.", "webhook-refused") from None


@router.get("/finetune", operation_id="list_jobs", responses=documented(404, 422), response_model=JobList)
def list_jobs(
    service: Here,
    request: Request,
    status: Annotated[Status | None, Query()] = None,
    initialization: Annotated[str | None, Query(pattern=ID, description="Only jobs that started from it")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(pattern=JOB_ID, description="The last id of the page before")] = None,
) -> Response:
    """A page of jobs, newest first."""
    last = find_job(service, request, after) if after is not None else None
    jobs = service.store.page(limit + 1, last, status, initialization, visible_to(caller_of(request)))
    data = [dump_job(show_job(job, prefix=prefix_of(request))) for job in jobs[:limit]]
    return JSONResponse({"object": "list", "data": data, "has_more": len(jobs) > limit})


@router.get("/finetune/{id}", operation_id="get_job", responses=documented(404, 422), response_model=Job)
def get_job(service: Here, request: Request, id: JobName) -> Response:
    """The job: status, progress, curves so far, and its result."""
    job = find_job(service, request, id)
    predicted = None if job.ended else service.forecast.seconds(job.spec)
    shown = show_job(job, service.storage, prefix=prefix_of(request), predicted=predicted)
    if (told := service.webhooks.find(job.id)) is not None:
        shown.webhook = WebhookState(status=told.status, attempts=told.attempts, error=told.error)  # type: ignore[arg-type]
    return JSONResponse(dump_job(shown))


@router.post(
    "/finetune/{id}/cancel",
    status_code=202,
    operation_id="cancel_job",
    responses=documented(404, 409, 422),
    response_model=Job,
)
def cancel_job(service: Here, request: Request, id: JobId) -> Response:
    """Stop a job. One that waits is cancelled at once, one that runs as soon as its worker looks up."""
    job = cancel(service, own_job(service, request, id))
    if job.status in ("succeeded", "failed"):
        raise HttpProblem(409, f"The job has {job.status} already.", "job-ended")
    return JSONResponse(dump_job(show_job(job, prefix=prefix_of(request))), 202)


def cancel(service: Service, job: JobRow) -> JobRow:
    """Stop a job, unless it has ended."""
    while True:
        if job.ended or job.status == "cancelling":
            return job
        values: JobChange = {"status": "cancelling"}
        if job.status == "queued":
            values = {"status": "cancelled", "finished_at": round(time.time(), 3)}
        changed = service.store.change(job, **values)
        job = service.store.get(job.id) or job
        if changed:
            service.hurry()
            return job


def weights(service: Here, request: Request, id: JobName) -> Response:
    """The fine-tuned model (safetensors), with class names and image statistics in its metadata."""
    job, result = find_model(service, request, id)
    return FileAnswer(open_model(service, job), result.weights.sha256, f"{job.id}.safetensors", metrics=service.metrics)


router.get(
    "/finetune/{id}/weights",
    operation_id="job_weights",
    response_class=Response,
    responses={**WEIGHTS_RESPONSES, **documented(404, 409, 410, 416, 422, 503)},
)(weights)


def find_model(service: Service, request: Request, name: str) -> tuple[JobRow, Result]:
    """A job that has a model, and its result."""
    job = find_job(service, request, name)
    if job.result is None:
        raise HttpProblem(409, f"The job is {job.status}: it has no model.", "no-weights")
    if job.model_deleted_at is not None:
        raise HttpProblem(410, f"The model of job {job.id} was deleted.", "model-deleted")
    return job, job.result


def model_place(service: Service, job: JobRow) -> tuple[FilePath, str]:
    """The local folder and the path below it where a finished job's model is."""
    name = f"{job_folder(job.id)}/{attempt_folder(job.attempt)}/{MODEL}"
    if service.storage.local:
        return FilePath(service.storage.root), name
    kept = service.settings.folder / "cache" / job.id
    if not (kept / MODEL).exists():
        Storage(kept).write(MODEL, service.storage.read(name))
    return kept, MODEL


def open_model(service: Service, job: JobRow) -> int:
    try:
        return open_regular(*model_place(service, job))
    except FileNotFoundError:
        raise HttpProblem(503, f"The weights of job {job.id} are missing from the storage.") from None
