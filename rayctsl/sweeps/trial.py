"""One trial of a sweep: the ordinary run on the ordinary engine, validated on the way.

Everything that must outlive a kill is in the trial's run folder: the engine's snapshots, and `trial.json` with what was
reported. A trial that is started again replays its reports to Tune and goes on from its newest snapshot.
"""

from __future__ import annotations

import io
import sys
import time
from functools import partial

import numpy as np
import torch

from rayctsl.cluster.trials import report, trial_engine
from rayctsl.config import Config, Overrides
from rayctsl.learning.group import NonFiniteLoss
from rayctsl.learning.meta_learner import kept_phi
from rayctsl.learning.run import Hooks, Run, train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.validation import training_problem, validate
from rayctsl.methods import build_method
from rayctsl.storage import Storage
from rayctsl.sweeps.config import Sweep, trial_config, trial_id
from rayctsl.sweeps.records import METRIC, TIME, Report, TrialRecord, read_record


def run_trial(sweep: Sweep, run_dir: str, overrides: Overrides) -> None:
    """What Tune starts: train, validate and report, from wherever an earlier start of this trial came to."""
    torch.set_num_threads(1)
    sys.unraisablehook = _report_unraisable
    config = trial_config(sweep, overrides)
    run, name = Storage(run_dir), trial_id(config, overrides)
    record = read_record(run, name) or TrialRecord(id=name, overrides=dict(overrides))
    for known in record.reports:
        report(known)
    if record.done:
        return
    trial = Trial(sweep, config, run, record)
    try:
        trial.train()
    except NonFiniteLoss as error:
        trial.record.closed("failed", str(error)).save(run)
        report({TIME: trial.record.last(TIME) or 0, METRIC: 0.0})
        return
    trial.record.closed("finished").save(run)
    report(trial.record.reports[-1])  # last of all: the scheduler may end this process in answer


def _report_unraisable(what: sys.UnraisableHookArgs) -> None:
    """Tune ends a trial's process by a signal, which may meet a destructor: that is nothing to tell the user."""
    if what.exc_type is not SystemExit:
        sys.__unraisablehook__(what)


class Trial:
    """A run that stops at the ends of trajectories to be validated."""

    def __init__(self, sweep: Sweep, config: Config, run: Storage, record: TrialRecord):
        self.sweep, self.run_storage, self.record = sweep, run, record
        # phi of most methods moves at the ends of trajectories only: to validate elsewhere would be unfair to them.
        # The sweep's period ends there already, unless its trials are too short to have one in common.
        self.every = config.inner_steps * -(-sweep.steps_per_report // config.inner_steps)
        self.config = config.model_copy(
            update={
                "snapshot_every": self.every,  # chunks of steps end at snapshots, so validation finds the run there
                "log_every": min(config.log_every, self.every),
                "tensorboard": bool(config.tensorboard),  # Tune writes files of its own
                "topology": config.topology.model_copy(update={"workers": num_learners(config)}),
            }
        )
        self.log = io.StringIO()
        self.started = time.monotonic()
        self.seconds_before = record.last("seconds") or 0.0

    def train(self) -> None:
        base = str(self.run_storage.inside(f"trials/{self.record.id}"))
        folder = RunFolder.open(base, self.config, resume="if_exists")
        self.record = self.record.closed("running").save(self.run_storage)
        problem = training_problem(self.config, self.sweep.validation, self.sweep.seed)
        engine = trial_engine(problem, num_learners(self.config))
        hooks = Hooks(after_chunk=self._report)
        try:
            train_with(engine, problem, folder, hooks=hooks, log=self.log, stop_on_signals=False)
        finally:
            folder.storage.write("log.txt", self.log.getvalue().encode())

    def _report(self, run: Run) -> None:
        """Validate where that is due; the end's report is left to `run_trial`, which closes the record first."""
        ended = run.step == run.total
        if (ended or (run.step and run.step % self.every == 0)) and run.step not in self._reported():
            self.record = self.record.reported(self._validate(run))
            if not ended:
                self.record.save(self.run_storage)
                report(self.record.reports[-1])

    def _reported(self) -> set[float]:
        return {report[TIME] for report in self.record.reports}

    def _validate(self, run: Run) -> Report:
        phi = run.engine.name_phi(kept_phi(run.engine.capture(run.step).result().meta))
        since = max(self._reported(), default=0)
        losses = [row["loss"] for row in run.metrics.rows if row["step"] > since]
        validation = self.sweep.validation
        measured: Report = {
            TIME: run.step,
            "inner_steps_total": run.step * len(run.problem.task_names),
            METRIC: run.engine.on_learner(partial(validate, phi, self.config, validation, self.sweep.seed)),
            "seconds": self.seconds_before + time.monotonic() - self.started,
        }
        return {**measured, "loss": float(np.nanmean(losses))} if losses else measured


def num_learners(config: Config) -> int:
    """One unless the config says more: many trials side by side fill a cluster without any exchange."""
    tasks = build_method(config.method, config.seed).select_tasks(config.data.tasks)
    return min(config.topology.workers or 1, len(tasks))
