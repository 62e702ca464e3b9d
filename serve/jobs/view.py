"""A job as the API shows it: its row of the store, and the curves from its folder."""

from __future__ import annotations

from typing import Any

from rayctsl.jobs.job import read_events
from rayctsl.storage import Storage
from serve.jobs.store import Job

SHOWN_CONFIG = (
    *("steps", "optimizer", "alpha", "momentum", "weight_decay", "decay_at", "decay"),
    *("batch_size", "train_size", "crop_padding", "flip", "evaluate_every"),
)


def show_job(job: Job, storage: Storage | None = None) -> dict[str, Any]:
    """The job's document; with a storage, its curves too."""
    spec, steps = job.spec, job.spec["config"]["steps"]
    shown: dict[str, Any] = {
        "object": "finetune",
        "id": job.id,
        "status": job.status,
        "label": job.request["label"],
        "dataset": spec["dataset"],
        "initialization": {key: spec["initialization"][key] for key in ("id", "sha256")},
        "seed": spec["seed"],
        "compare_with_scratch": spec["compare_with_scratch"],
        "config": {key: spec["config"][key] for key in SHOWN_CONFIG},
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "attempt": job.attempt,
        "progress": {"step": job.step, "steps": steps, "fraction": round(job.step / steps, 4)},
        "result": None,
        "error": job.error,
    }
    if job.result is not None:
        weights = {**job.result["weights"], "url": f"/finetune/{job.id}/weights"}
        shown["result"] = {**job.result, "weights": weights}
    if storage is not None:
        shown["metrics"] = curves(job, job_events(job, storage))
    return shown


def job_events(job: Job, storage: Storage) -> list[dict[str, Any]]:
    return read_events(storage.inside(f"jobs/{job.id}"), job.attempt) if job.attempt else []


def curves(job: Job, events: list[dict[str, Any]]) -> dict[str, Any]:
    runs: dict[str, Any] = {"initialization": []}
    runs["scratch"] = [] if job.spec["compare_with_scratch"] else None
    for event in events:
        if event["type"] == "point":
            runs[event["run"]].append({key: event[key] for key in ("step", "loss", "accuracy")})
    return runs
