"""`run_job` brings one attempt of a fine-tuning job to its result file. How the files lie: `rayctsl.jobs.files`."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rayctsl.contract import package_versions
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.jobs.contracts import Failure, JobSpec, Outcome, Result, RunName, StepProgress, Weights, read_spec
from rayctsl.jobs.files import (
    CANCEL,
    CHECKPOINT,
    PROGRESS,
    RESULT,
    SPEC,
    EventLog,
    attempt_folder,
    read_document,
)
from rayctsl.jobs.log import JobLog, without_paths
from rayctsl.jobs.model_card import SeedSummary
from rayctsl.jobs.saved_model import save_model
from rayctsl.learning.finetune import CurvePoint, Finetuner
from rayctsl.learning.start import Start, start_from
from rayctsl.registry import Initialization, open_initialization
from rayctsl.storage import Storage
from rayctsl.words import one_line

Runs = dict[RunName, Finetuner]


@dataclass(frozen=True)
class Pace:
    """How often a running job looks up from its work, in seconds."""

    tick: float = 0.5
    checkpoint: float = 30.0
    limit: float = 24 * 3600.0


class CancelledError(Exception):
    """Someone raised the job's flag."""


def run_job(job: Storage, attempt: int, pace: Pace | None = None, device: str = "cpu") -> Outcome:
    """Run one attempt to its result file and return it; errors of the storage are raised, for a later try.

    Args:
        device: what this process has reserved; others may be using the rest.
    """
    here = job.inside(attempt_folder(attempt))
    if (earlier := read_document(here, RESULT, Outcome)) is not None:
        return earlier
    log = JobLog(here)
    with log.listening():
        outcome = _attempt(job, attempt, pace or Pace(), device, log)
    here.write(RESULT, outcome.to_bytes())
    for number in range(1, attempt + 1):  # nobody goes on from them any more
        job.delete(f"{attempt_folder(number)}/{CHECKPOINT}")
    return outcome


def _attempt(job: Storage, attempt: int, pace: Pace, device: str, log: JobLog) -> Outcome:
    end = partial(Outcome, attempt=attempt)
    log.say(f"attempt {attempt} begins on {device}")
    try:
        result = _train(job, attempt, pace, device, log)
        outcome = end(status="succeeded", result=result, finished_at=_now())
    except CancelledError:
        outcome = end(status="cancelled", finished_at=_now())
    except TimeoutError as error:
        outcome = end(status="failed", error=Failure(code="timeout", message=str(error)), finished_at=_now())
    except OSError:
        raise
    except Exception as error:  # whatever a model or dataset does: the job has failed, the worker goes on
        outcome = end(status="failed", error=_failure(error), finished_at=_now())
    log.say(f"it has {outcome.status}" + (f": {outcome.error.message}" if outcome.error else ""))
    return outcome


def _failure(error: Exception) -> Failure:
    """The reason as its user may see it: a sentence without this machine's paths; the rest goes to the worker's log."""
    traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, ValueError):
        return Failure(code="bad_input", message=without_paths(one_line(error, 500)))
    kind = type(error).__name__
    return Failure(code="internal", message=f"{kind} while training; the log of the job's worker says more")


class _Watch:
    """Looks up from the work: tells how far it is, hears a cancel, ends what takes too long, saves checkpoints."""

    def __init__(self, job: Storage, here: Storage, pace: Pace):
        self._job, self._here, self._pace = job, here, pace
        self._started = self._last_tick = self._last_save = time.monotonic()

    def look_up(self, step: int) -> None:
        self._here.write(PROGRESS, StepProgress(step=step, at=_now()).to_bytes())
        if self._job.exists(CANCEL):
            raise CancelledError
        if time.monotonic() - self._started > self._pace.limit:
            raise TimeoutError(f"the job took longer than {self._pace.limit:.0f} s")
        self._last_tick = time.monotonic()

    def after_step(self, runs: Runs) -> None:
        if time.monotonic() - self._last_tick >= self._pace.tick:
            self.look_up(min(tuner.step for tuner in runs.values()))
        if time.monotonic() - self._last_save >= self._pace.checkpoint:
            self._here.write(CHECKPOINT, _checkpoint(runs))
            self._last_save = time.monotonic()


def _train(job: Storage, attempt: int, pace: Pace, device: str, log: JobLog) -> Result:
    here = job.inside(attempt_folder(attempt))
    watch, events = _Watch(job, here, pace), EventLog(job, attempt)
    watch.look_up(0)
    spec = read_spec(job.read(SPEC))
    start = start_from(_open(spec))
    runs, dataset = _prepare(spec, start, device)
    log.say(f"{start.name} on {dataset.name}: {len(runs['initialization'].train_indices)} training images")
    if checkpoint := _latest_checkpoint(job, attempt):
        _restore(runs, checkpoint)
        events.resume(attempt, min(tuner.step for tuner in runs.values()))
        log.say(f"goes on from step {events.events[-1].step}")  # type: ignore[union-attr]
    elif not events.events:
        events.start(spec.config.steps, tuple(runs))
    while unfinished := {name: tuner for name, tuner in runs.items() if tuner.step < tuner.config.steps}:
        # Always the run that is behind, so that the two curves of a comparison grow side by side.
        name, tuner = min(unfinished.items(), key=lambda item: item[1].step)
        tuner.run(tuner.step + 1, on_point=partial(_report, events, log, name))
        watch.after_step(runs)
    watch.look_up(spec.config.steps)
    tuner = runs["initialization"]
    alone = SeedSummary(count=1, mean=tuner.curve[-1].accuracy, interval=None)
    card = save_model(here, tuner, start, spec.seed, alone)
    return _result(runs, dataset, Weights(sha256=card.sha256, size=card.size))


def _result(runs: Runs, dataset: Dataset, weights: Weights) -> Result:
    tuner = runs["initialization"]
    return Result(
        accuracy=tuner.curve[-1].accuracy,
        scratch_accuracy=runs["scratch"].curve[-1].accuracy if "scratch" in runs else None,
        loss=tuner.curve[-1].loss,
        train_size=len(tuner.train_indices),
        test_size=len(dataset.test),
        num_classes=dataset.num_classes,
        dataset_checksum=dataset.train.info.checksum,
        weights=weights,
        versions=package_versions(),
    )


def _prepare(spec: JobSpec, start: Start, device: str) -> tuple[Runs, Dataset]:
    """The runs by name (`initialization`, and `scratch` for a comparison) and the dataset."""
    dataset = open_dataset(spec.dataset, spec.data_root)

    def begin(phi: Mapping[str, Tensor] | None) -> Finetuner:
        module = start.build(dataset.num_classes, spec.seed)
        return Finetuner(module, dataset, spec.config, seed=spec.seed, phi=phi, device=device)

    runs: Runs = {"initialization": begin(start.phi)}
    if spec.compare_with_scratch:
        runs["scratch"] = begin(None)
    return runs, dataset


def _open(spec: JobSpec) -> Initialization:
    source = spec.initialization
    try:
        initialization = open_initialization(source.path)
    except ValueError as error:
        print(one_line(error, 500), file=sys.stderr)
        raise ValueError(f"initialization {source.id} is gone from the storage since the job was accepted") from None
    if initialization.card.sha256 != source.sha256:
        raise ValueError(f"initialization {source.id} has changed since the job was accepted")
    return initialization


def _report(events: EventLog, log: JobLog, run: RunName, point: CurvePoint) -> None:
    if not math.isfinite(point.loss):
        raise ValueError(f"training diverged by step {point.step}: the loss is not finite; try a smaller learning rate")
    events.reach(run, point.step, point.loss, point.accuracy)
    log.say(f"{run}, step {point.step}: loss {point.loss:.4f}, accuracy {100 * point.accuracy:.2f} %")


def _checkpoint(runs: Runs) -> bytes:
    return save({f"{name}/{key}": value for name, tuner in runs.items() for key, value in tuner.state().items()})


def _restore(runs: Runs, tensors: dict[str, Tensor]) -> None:
    for name, tuner in runs.items():
        prefix = f"{name}/"
        tuner.load_state({key.removeprefix(prefix): v for key, v in tensors.items() if key.startswith(prefix)})


def _latest_checkpoint(job: Storage, attempt: int) -> dict[str, Tensor] | None:
    for number in range(attempt - 1, 0, -1):
        try:
            return load(job.read(f"{attempt_folder(number)}/{CHECKPOINT}"))
        except (FileNotFoundError, SafetensorError):
            continue
    return None


def _now() -> float:
    return round(time.time(), 3)
