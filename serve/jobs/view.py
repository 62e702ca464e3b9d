"""A job as the API shows it: its row of the store, and the curves from its folder."""

from __future__ import annotations

from rayctsl.contract import JsonObject
from rayctsl.data.names import shown_name
from rayctsl.jobs.contracts import JobEvent, PointReached
from rayctsl.jobs.files import job_folder, read_events
from rayctsl.storage import Storage
from serve.jobs.rows import JobRow
from serve.problems import log
from serve.schemas import Curves, Job, JobPoint, JobProgress, JobResult, JobWeights, UsedInitialization


def show_job(job: JobRow, storage: Storage | None = None, *, prefix: str = "", predicted: float | None = None) -> Job:
    """The job's document; with a storage, its curves too.

    Args:
        prefix: what the caller's paths begin with, `/v1` or nothing.
    """
    spec, steps = job.spec, job.spec.config.steps
    return Job(
        id=job.id,
        status=job.status,
        label=job.label,
        dataset=shown_name(spec.dataset),
        initialization=UsedInitialization(id=spec.initialization.id, sha256=spec.initialization.sha256),
        seed=spec.seed,
        compare_with_scratch=spec.compare_with_scratch,
        config=spec.config,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        predicted_seconds=predicted,
        attempt=job.attempt,
        progress=JobProgress(step=job.step, steps=steps, fraction=round(job.step / steps, 4)),
        metrics=_curves(job, job_events(job, storage)) if storage is not None else None,
        result=_result(job, prefix),
        error=job.error,
    )


def dump_job(job: Job) -> JsonObject:
    """The document as JSON; a job in a list has no curves."""
    return job.model_dump(mode="json", exclude={"metrics"} if job.metrics is None else None)


def job_events(job: JobRow, storage: Storage) -> list[JobEvent]:
    if not job.attempt:
        return []
    try:
        return read_events(storage.inside(job_folder(job.id)), job.attempt)
    except ValueError as error:
        log.warning("job %s: %s", job.id, error)
        return []


def _curves(job: JobRow, events: list[JobEvent]) -> Curves:
    runs: dict[str, list[JobPoint]] = {"initialization": [], "scratch": []}
    for event in events:
        if isinstance(event, PointReached):
            runs[event.run].append(JobPoint(step=event.step, loss=event.loss, accuracy=event.accuracy))
    scratch = runs["scratch"] if job.spec.compare_with_scratch else None
    return Curves(initialization=runs["initialization"], scratch=scratch)


def _result(job: JobRow, prefix: str) -> JobResult | None:
    if job.result is None:
        return None
    weights = job.result.weights
    url = f"{prefix}/finetune/{job.id}/weights" if job.model_deleted_at is None else None
    shown = JobWeights(sha256=weights.sha256, size=weights.size, url=url)
    return JobResult(**{**dict(job.result), "weights": shown})
