"""A whole run, whatever engine computes it: resume, chunks of steps, metrics, snapshots, the initialization."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TextIO

import numpy as np
from torch import Tensor

from rayctsl.config import Config
from rayctsl.futures import finished
from rayctsl.learning.chunk_report import details, loss_summary, note, record
from rayctsl.learning.engine import Engine, EngineFault, LocalEngine
from rayctsl.learning.meta_learner import kept_phi
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.old_snapshots import in_todays_layout
from rayctsl.learning.problem import Problem
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import RunState
from rayctsl.learning.stopping import Interrupted, StopAtOnce, StopSignals
from rayctsl.learning.task_learner import COUNTED
from rayctsl.learning.trackers import open_trackers
from rayctsl.progress import Progress
from rayctsl.registry import Initialization, save_initialization

CHUNK_SECONDS = 2.0  # how long one call of the engine should take: short enough to stop quickly


def run_local(config: Config, folder: RunFolder, problem: Problem | None = None) -> Initialization:
    """Train in this process, without Ray."""
    problem = problem or Problem.of(config)
    return train_with(LocalEngine(problem), problem, folder)


def _nothing(*unused: object) -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """What a caller of `train_with` wants to do on the way; each is given the `Run`."""

    after_chunk: Callable[[Run], None] = _nothing
    """After every chunk of steps, and after each start from a snapshot or from nothing."""
    before_recovery: Callable[[Run], None] = _nothing
    """After a fault, before everyone goes back to the last snapshot."""
    after_recovery: Callable[[Run, float], None] = _nothing
    """Given the seconds that the recovery took, `before_recovery` included."""


def train_with(
    engine: Engine,
    problem: Problem,
    folder: RunFolder,
    *,
    hooks: Hooks | None = None,
    log: TextIO | None = None,
    stop_on_signals: bool = True,
) -> Initialization:
    """Run a problem to its end on an engine, from the folder's newest snapshot if there is one.

    Args:
        log: where progress is shown; the terminal when absent.
        stop_on_signals: let SIGINT and SIGTERM end the run between two chunks, saved.
    """
    hooks = hooks or Hooks()
    with Run(engine, problem, folder, log) as run, StopSignals(run, stop_on_signals) as stop:
        while True:
            try:
                for _ in run.chunks():
                    hooks.after_chunk(run)
                    if stop.received:
                        break
                return run.finish(stop.received)
            except EngineFault as fault:
                if stop.received:  # perhaps by the very signal: what the last snapshot has is kept
                    raise StopAtOnce(stop.received) from fault
                started = time.monotonic()
                hooks.before_recovery(run)
                run.recover(fault)
                hooks.after_recovery(run, time.monotonic() - started)


class Run:
    """One run on its way: where it stands, and what it has written. `train_with` drives it."""

    def __init__(self, engine: Engine, problem: Problem, folder: RunFolder, log: TextIO | None = None):
        self.engine, self.problem, self.folder, self.config = engine, problem, folder, problem.config
        self.total, self.step, self.begun = problem.config.total_steps, 0, False
        self.starting = False  # or starting again after a fault: nothing is lost by stopping now
        self.faults, self.failures = 0, 0  # in all; and those without a new snapshot in between
        self.phi_sha256 = ""  # of the snapshot that the run went on from
        self._newest = 0  # snapshot at the last fault
        self._last_death: tuple[int, str] | None = None
        self.lease = folder.claim()
        try:
            self.metrics = Metrics(folder.storage, open_trackers(folder.storage, self.config))
        except BaseException:
            self.lease.release()
            raise
        self.writer = folder.snapshot_writer(self.config.keep_snapshots, self.lease)
        self.progress = Progress(self.total, self.config.method.name, stream=log)
        engine.say = self.progress.say
        self.counts = np.zeros(len(COUNTED), int)
        self.seconds_per_step: float | None = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        self.progress.close()
        self.engine.close()
        self.writer.stop()
        self.lease.release()

    def chunks(self) -> Iterator[int]:
        """Begin if that was not done yet, then take the steps that are left; yields the step after each chunk."""
        if not self.begun:
            self.begin()
        yield self.step
        while self.step < self.total:
            self.advance()
            yield self.step

    def begin(self) -> None:
        self.starting = True
        self._begin()
        self.starting = False

    def _begin(self) -> None:
        """Set the engine to the newest snapshot, or to a fresh start, which is saved as well."""
        state = self.folder.restore(self.lease)
        state = in_todays_layout(state, self.problem) if state else None
        self.engine.start(state)
        self.step = state.step if state else 0
        self.phi_sha256 = _sha256(state.meta["phi"]) if state else "of the beginning"
        self.metrics.restore(self.step)
        before, now = state.facts.get("computed_on") if state else None, self.engine.computed_on
        if before and before != now:
            self.progress.say(f"begun on {before}, continued on {now}: other bits than of an undisturbed run")
        self.progress.jump(self.step)
        if state is None:
            self.writer.write(self._capture())
        else:
            self.counts = np.sum([task["counts"].numpy() for task in state.tasks.values()], axis=0)
        if not self.begun:
            self.progress.say(self.engine.describe())
            if self.step:
                self.progress.say(f"continuing at inner step {self.step} of {self.total}")
        self.begun = True

    def advance(self, last: bool = False) -> None:
        """One chunk of steps; the next may be under way when it returns, unless it is the `last`."""
        target = self.engine.under_way or _chunk_end(self.step, self.config, self.seconds_per_step)
        chunk = self.engine.run(self.step, target, None if last else self._end_after(target))
        self.seconds_per_step, self.counts = chunk.seconds / (target - self.step), chunk.counts
        record(self.metrics, chunk, self.step, self.problem)
        self.progress.advance(target - self.step, note(chunk), details(chunk, self.writer.newest))
        self.step = target
        if self._is_due(self.step):
            self.lease.check()
            self.writer.write(self._capture())
            self.metrics.save()

    def _is_due(self, step: int) -> bool:
        """Whether the state is wanted after a step."""
        return step % self.config.snapshot_every == 0 or step == self.total

    def _end_after(self, step: int) -> int | None:
        """Where the chunk that begins at `step` will end, if learners may begin it without hearing from anyone."""
        if self.seconds_per_step is None or self._is_due(step):
            return None
        return _chunk_end(step, self.config, self.seconds_per_step)

    def drain(self) -> None:
        """Take the chunk that is under way, so that the engine stands where the run does."""
        if self.engine.under_way is not None:
            self.advance(last=True)

    def _capture(self) -> Future[RunState]:
        return self.engine.capture(self.step, self.folder.snapshot_address(self.step, self.lease))

    @property
    def spent(self) -> dict[str, int]:
        """Gradients taken so far, by kind."""
        return dict(zip(COUNTED, (int(count) for count in self.counts), strict=True))

    def recover(self, fault: EngineFault) -> None:
        """After a fault: everyone back to the last snapshot, unless there were too many since the one before."""
        started = time.monotonic()
        while True:
            self.writer.flush()
            self._judge(fault)
            try:
                self.begin()
                break
            except EngineFault as again:
                fault = again
        seconds = time.monotonic() - started
        where = f"inner step {self.step} of {self.total}, phi sha256 {self.phi_sha256[:16]}"
        self.progress.say(f"recovered in {seconds:.1f} s, continuing at {where}")

    def _judge(self, fault: EngineFault) -> None:
        """Tell of a fault, and give up when it is one too many without progress, or the same death again."""
        if self.writer.newest > self._newest:  # there was progress since the fault before
            self.failures, self._newest = 0, self.writer.newest
        self.failures += fault.counts
        self.faults += 1
        self.progress.say(f"fault {self.faults}: {fault}; going back to the last snapshot")
        if fault.at is not None and fault.at == self._last_death:
            step, task = fault.at
            text = f"task {task!r} ended its process twice at inner step {step}: look at its data and its memory"
            raise EngineFault(text) from fault
        self._last_death = fault.at or self._last_death
        if self.failures > self.config.topology.max_failures:
            raise fault

    def interrupted(self, signum: int) -> Interrupted:
        return Interrupted(signum, str(self.folder.storage), self.config.model.own)

    def finish(self, stopped_by: int) -> Initialization:
        """Save what there is; at the end of the run the initialization and the plots too."""
        self.drain()
        if stopped_by:
            self.progress.say(f"stopping: saving a snapshot at inner step {self.step}")
        final = self.engine.capture(self.step).result()
        if stopped_by:
            self.writer.write(finished(final))
            self.writer.close()
            self.metrics.close()
            raise self.interrupted(stopped_by)
        phi = self.engine.name_phi(kept_phi(final.meta))
        self.writer.close()
        self.lease.check()
        self.metrics.close()
        self.progress.say(self.engine.describe())
        storage = self.folder.storage.inside("initialization")
        initialization = save_initialization(
            storage,
            phi,
            self.config,
            spent=self.spent,
            metrics=loss_summary(self.metrics),
            computed_on=self.engine.computed_on,
        )
        self.folder.plot(self.metrics)
        return initialization


def _sha256(phi: Tensor) -> str:
    return hashlib.sha256(phi.numpy().tobytes()).hexdigest()


def _chunk_end(step: int, config: Config, per_step: float | None) -> int:
    """Where the next chunk ends: about CHUNK_SECONDS on, never across a snapshot. Chunks do not change results."""
    wanted = 1 if per_step is None else max(1, int(CHUNK_SECONDS / max(per_step, 1e-6)))
    boundary = (step // config.snapshot_every + 1) * config.snapshot_every
    return min(step + wanted, boundary, config.total_steps)
