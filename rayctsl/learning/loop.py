"""The algorithm on one page: `take_step` is the inner loop of every method, in one process or in many.

`run_local` runs it here; the cluster's actors run the very same `run_steps`, each with its own tasks and a replica of
the meta-learner, and differ only in the `Exchange` that sums contributions over processes. What a step leaves behind
stays on the device until its chunk ends: nothing inside makes the host wait for an accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rayctsl.futures import Later, finished
from rayctsl.learning.group import TaskGroup
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.learning.step_log import StepLog
from rayctsl.methods import Method, Step

Exchange = Callable[[Tensor], Later[Tensor]]  # this process's sum -> (later) the sum over all processes


def keep_here(total: Tensor) -> Later[Tensor]:
    """The exchange of a single process."""
    return finished(total)


@dataclass(frozen=True)
class StepRecord:
    """What one step leaves for the metrics of this process's tasks."""

    losses: np.ndarray  # before the step, NaN for dropped tasks
    delta_norm: float  # NaN without a meta-update
    disagreement: float  # of the tasks' contributions, NaN without a meta-update
    inner_steps: int  # taken so far, over all tasks


def run_steps(
    start: int,
    stop: int,
    inner_steps: int,
    method: Method,
    group: TaskGroup,
    meta: OuterLearner,
    exchange: Exchange = keep_here,
    on_step: Callable[[int], None] | None = None,
) -> list[StepRecord]:
    """Inner steps number start .. stop - 1 of a run, with every meta-update and shift in between.

    Raises NonFiniteLoss at the end of these steps, not inside: from the step that diverged on, phi stays where it was.
    """
    travelling: Later[Tensor] | None = keep_here(meta.pending) if meta.pending is not None else None
    log = StepLog([Step.at(index, inner_steps) for index in range(start, stop)], group, meta.phi)
    for row, step in enumerate(log.steps):
        travelling = take_step(step, method, group, meta, exchange, travelling, log, row)
        if on_step:
            on_step(step.index)
    # A total still on its way is part of the state: it belongs to the next step, in this call or after a restart.
    meta.pending = travelling.result() if travelling is not None else None
    log.close()
    return [
        StepRecord(losses, float(norm), float(apart), int(taken))
        for losses, norm, apart, taken in zip(
            log.losses, log.delta_norms, log.disagreements, log.inner_steps, strict=True
        )
    ]


def take_step(
    step: Step,
    method: Method,
    group: TaskGroup,
    meta: OuterLearner,
    exchange: Exchange,
    travelling: Later[Tensor] | None,
    log: StepLog,
    row: int,
) -> Later[Tensor] | None:
    """One inner step of every task, and the meta-update that follows it, if one does.

    With shift_delay 0 (the paper) the total is applied at once. With 1 it travels while the next gradient is computed:
    theta - phi is the same before and after a shift, so a late shift costs accuracy only in where gradients are taken.
    """

    def apply(total: Tensor) -> None:
        delta = meta.update(total)
        group.shift(meta.phi, delta, step)
        log.note_update(row, total, delta, meta.disagreement)

    if step.k == 1:
        group.begin_trajectory(meta.phi)
    log.note_losses(row, group.inner_step(meta.phi, step))
    contribution = group.contribution(meta.phi, step) if method.updates_at(step) else None
    log.note_alive(row)
    if travelling is not None:
        apply(travelling.result())
        travelling = None
    if contribution is not None:
        travelling = exchange(contribution)
        if method.shift_delay == 0 or step.k == step.K:
            apply(travelling.result())
            travelling = None
    return travelling
