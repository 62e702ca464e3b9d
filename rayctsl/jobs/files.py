"""How jobs and workers lie in a storage, and how their documents are read. No torch here: the service reads them too.

A job folder holds `spec.json` (written once by whoever accepted the job), maybe the flag `cancel`, and one folder per
attempt, so that an attempt believed dead can never overwrite a later one: `attempt-1/events.jsonl`, `progress.json`,
`checkpoint.safetensors`, `log.txt`, the model
(`model.safetensors`, `model.json`, `README.md`), and `result.json`, written last. A worker's folder holds `job.json`,
where only the service writes, and `alive.json`, where only the worker does.
"""

from __future__ import annotations

import json
import time
from typing import TypeVar

from rayctsl.contract import Contract, read_contract
from rayctsl.jobs.contracts import JobEvent, PointReached, Resumed, RunName, Started, read_event
from rayctsl.storage import Storage

SPEC, CANCEL = "spec.json", "cancel"
EVENTS, PROGRESS, CHECKPOINT = "events.jsonl", "progress.json", "checkpoint.safetensors"
MODEL, RESULT = "model.safetensors", "result.json"
ASSIGNMENT, ALIVE = "job.json", "alive.json"
BEAT_SECONDS = 2.0

Document = TypeVar("Document", bound=Contract)


def job_folder(job_id: str) -> str:
    return f"jobs/{job_id}"


def worker_folder(worker: str) -> str:
    return f"workers/{worker}"


def attempt_folder(number: int) -> str:
    return f"attempt-{number}"


def read_document(storage: Storage, name: str, kind: type[Document]) -> Document | None:
    """A file as the document that it is, or None when there is no such file."""
    try:
        data = storage.read(name)
    except FileNotFoundError:
        return None
    return read_contract(kind, data, name)


def read_events(job: Storage, attempt: int) -> list[JobEvent]:
    """The events of the newest attempt that has any."""
    for number in range(attempt, 0, -1):
        try:
            lines = job.read(f"{attempt_folder(number)}/{EVENTS}").splitlines()
        except FileNotFoundError:
            continue
        return [read_event(line) for line in lines]
    return []


class EventLog:
    """The numbered events of a job; a later attempt goes on where the earlier one ended."""

    def __init__(self, job: Storage, attempt: int):
        self._storage = job.inside(attempt_folder(attempt))
        self.events = read_events(job, attempt)

    def start(self, steps: int, runs: tuple[str, ...]) -> None:
        self._add(Started(id=self._next, at=_now(), steps=steps, runs=runs))

    def resume(self, attempt: int, step: int) -> None:
        self._add(Resumed(id=self._next, at=_now(), attempt=attempt, step=step))

    def reach(self, run: RunName, step: int, loss: float, accuracy: float) -> None:
        """Tell of a point, unless an earlier attempt, which came further than its checkpoint, has done so."""
        if not any(isinstance(e, PointReached) and (e.run, e.step) == (run, step) for e in self.events):
            self._add(PointReached(id=self._next, at=_now(), run=run, step=step, loss=loss, accuracy=accuracy))

    @property
    def _next(self) -> int:
        return len(self.events) + 1

    def _add(self, event: JobEvent) -> None:
        self.events.append(event)
        # Few and small: rewriting them whole is atomic, and works on object stores, which cannot append.
        lines = "".join(json.dumps(event.to_json()) + "\n" for event in self.events)
        self._storage.write(EVENTS, lines.encode())


def _now() -> float:
    return round(time.time(), 3)
