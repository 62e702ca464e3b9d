"""A fine-tuning job as a folder, and `run_job`, which brings it to its result.

A job folder holds `spec.json` (written once by whoever accepted the job), maybe the flag `cancel`, and one folder per
attempt, so that an attempt believed dead can never overwrite a later one: `attempt-1/events.jsonl`, `progress.json`,
`checkpoint.safetensors`, `model.safetensors`, and `result.json`, written last: a job has ended when that file is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass
from typing import Any

from rayctsl.contract import package_versions
from rayctsl.storage import Storage

SPEC, CANCEL = "spec.json", "cancel"
EVENTS, PROGRESS, CHECKPOINT, MODEL, RESULT = (
    "events.jsonl",
    "progress.json",
    "checkpoint.safetensors",
    "model.safetensors",
    "result.json",
)


@dataclass(frozen=True)
class Pace:
    """How often a running job looks up from its work, in seconds."""

    tick: float = 0.5
    checkpoint: float = 30.0
    limit: float = 24 * 3600.0


class CancelledError(Exception):
    """Someone raised the job's flag."""


def attempt_folder(number: int) -> str:
    return f"attempt-{number}"


def read_json(storage: Storage, name: str) -> Any:
    """A JSON file's content, or None when there is no such file."""
    try:
        return json.loads(storage.read(name))
    except FileNotFoundError:
        return None


def read_events(job: Storage, attempt: int) -> list[dict[str, Any]]:
    """The events of the newest attempt that has any; each has `id` (1, 2, …), `type`, `at` and its data."""
    for number in range(attempt, 0, -1):
        try:
            lines = job.read(f"{attempt_folder(number)}/{EVENTS}").splitlines()
        except FileNotFoundError:
            continue
        return [json.loads(line) for line in lines]
    return []


class EventLog:
    """The numbered events of a job; a later attempt goes on where the earlier one ended."""

    def __init__(self, job: Storage, attempt: int):
        self._storage = job.inside(attempt_folder(attempt))
        self.events = read_events(job, attempt)

    def add(self, kind: str, **data: Any) -> None:
        self.events.append({"id": len(self.events) + 1, "type": kind, "at": round(time.time(), 3), **data})
        # Few and small: rewriting them whole is atomic, and works on object stores, which cannot append.
        self._storage.write(EVENTS, "".join(json.dumps(event) + "\n" for event in self.events).encode())

    def has_point(self, run: str, step: int) -> bool:
        return any(e["type"] == "point" and (e["run"], e["step"]) == (run, step) for e in self.events)


def run_job(job: Storage, attempt: int, pace: Pace | None = None) -> dict[str, Any]:
    """Run one attempt to its result file and return the result; errors of the storage are raised, for a later try."""
    here = job.inside(attempt_folder(attempt))
    if (earlier := read_json(here, RESULT)) is not None:
        return earlier
    events = EventLog(job, attempt)
    outcome: dict[str, Any]
    try:
        outcome = {"status": "succeeded", **_train(job, attempt, events, pace or Pace())}
    except CancelledError:
        outcome = {"status": "cancelled"}
    except TimeoutError as error:
        outcome = {"status": "failed", "error": {"code": "timeout", "message": str(error)}}
    except OSError:
        raise
    except ValueError as error:
        outcome = {"status": "failed", "error": {"code": "bad_input", "message": one_line(error)}}
    except Exception as error:  # whatever a model or dataset does: the job has failed, the worker goes on
        message = f"{type(error).__name__}: {one_line(error)}"
        outcome = {"status": "failed", "error": {"code": "internal", "message": message}}
    here.write(RESULT, json.dumps({**outcome, "attempt": attempt, "finished_at": round(time.time(), 3)}).encode())
    return outcome


def _train(job: Storage, attempt: int, events: EventLog, pace: Pace) -> dict[str, Any]:
    here = job.inside(attempt_folder(attempt))
    started = time.monotonic()

    def look_up(step: int) -> None:
        here.write(PROGRESS, json.dumps({"step": step, "at": round(time.time(), 3)}).encode())
        if job.exists(CANCEL):
            raise CancelledError
        if time.monotonic() - started > pace.limit:
            raise TimeoutError(f"the job took longer than {pace.limit:.0f} s")

    look_up(0)
    spec = json.loads(job.read(SPEC))
    runs, dataset, model = _prepare(spec)
    checkpoint = _latest_checkpoint(job, attempt)
    if checkpoint:
        _restore(runs, checkpoint)
        events.add("resumed", attempt=attempt, step=min(tuner.step for tuner in runs.values()))
    elif not events.events:
        events.add("started", steps=spec["config"]["steps"], runs=list(runs))

    last_tick = last_save = time.monotonic()
    while unfinished := {name: tuner for name, tuner in runs.items() if tuner.step < tuner.config.steps}:
        # Always the run that is behind, so that the two curves of a comparison grow side by side.
        name, tuner = min(unfinished.items(), key=lambda item: item[1].step)
        tuner.run(tuner.step + 1, on_point=lambda point, name=name: _report(events, name, point))
        now = time.monotonic()
        if now - last_tick >= pace.tick:
            look_up(min(tuner.step for tuner in runs.values()))
            last_tick = now
        if now - last_save >= pace.checkpoint:
            here.write(CHECKPOINT, _checkpoint(runs))
            last_save = time.monotonic()
    look_up(spec["config"]["steps"])

    from rayctsl.jobs.model import save_finetuned

    data = save_finetuned(runs["initialization"].module, model, dataset.train.info)
    here.write(MODEL, data)
    tuner = runs["initialization"]
    result = {
        "accuracy": tuner.curve[-1].accuracy,
        "scratch_accuracy": runs["scratch"].curve[-1].accuracy if "scratch" in runs else None,
        "loss": tuner.curve[-1].loss,
        "train_size": len(tuner.train_indices),
        "test_size": len(dataset.test),
        "num_classes": dataset.num_classes,
        "dataset_checksum": dataset.train.info.checksum,
        "weights": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)},
        "versions": package_versions(),
    }
    return {"result": result}


def _prepare(spec: dict[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """The runs by name (`initialization`, and `scratch` for a comparison), the dataset and the model's options."""
    import torch

    from rayctsl.config import FinetuneConfig
    from rayctsl.data.library import open_dataset
    from rayctsl.learning.finetune import Finetuner
    from rayctsl.models import build_model
    from rayctsl.registry import open_initialization

    dataset = open_dataset(spec["dataset"], spec["data_root"])
    initialization = open_initialization(spec["initialization"]["path"])
    if initialization.card.sha256 != spec["initialization"]["sha256"]:
        raise ValueError(f"initialization {initialization.id} has changed since the job was accepted")
    config, seed = FinetuneConfig.model_validate(spec["config"]), spec["seed"]
    model = initialization.card.built_in
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def start(phi: Any) -> Finetuner:
        module = build_model(model, dataset.num_classes, seed)
        return Finetuner(module, dataset, config, seed=seed, phi=phi, device=device)

    runs = {"initialization": start(initialization.phi())}
    if spec["compare_with_scratch"]:
        runs["scratch"] = start(None)
    return runs, dataset, model.model_dump(mode="json")


def _report(events: EventLog, run: str, point: Any) -> None:
    if not math.isfinite(point.loss):
        raise ValueError(f"training diverged by step {point.step}: the loss is not finite; try a smaller alpha")
    if not events.has_point(run, point.step):  # an earlier attempt may have come further than its checkpoint
        events.add("point", run=run, **asdict(point))


def _checkpoint(runs: dict[str, Any]) -> bytes:
    from safetensors.torch import save

    return save({f"{name}/{key}": value for name, tuner in runs.items() for key, value in tuner.state().items()})


def _restore(runs: dict[str, Any], tensors: dict[str, Any]) -> None:
    for name, tuner in runs.items():
        prefix = f"{name}/"
        tuner.load_state({key.removeprefix(prefix): v for key, v in tensors.items() if key.startswith(prefix)})


def _latest_checkpoint(job: Storage, attempt: int) -> dict[str, Any] | None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    for number in range(attempt - 1, 0, -1):
        try:
            return load(job.read(f"{attempt_folder(number)}/{CHECKPOINT}"))
        except (FileNotFoundError, SafetensorError):
            continue
    return None


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
