"""The algorithm on one page: `take_step` is the inner loop of every method, in one process or in many.

`run_local` runs it here; the cluster's actors run the very same `run_steps`, each with its own tasks and a replica of
the meta-learner, and differ only in the `Exchange` that sums contributions over processes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rayctsl.futures import finished
from rayctsl.learning.group import NonFiniteLoss, TaskGroup
from rayctsl.learning.meta_learner import MetaLearner
from rayctsl.methods import Method, Step

Exchange = Callable[[Tensor], "Future[Tensor]"]  # this process's sum -> (later) the sum over all processes


def keep_here(total: Tensor) -> Future[Tensor]:
    """The exchange of a single process."""
    return finished(total)


@dataclass(frozen=True)
class StepRecord:
    """What one step leaves for the metrics of this process's tasks."""

    losses: np.ndarray  # before the step, NaN for dropped tasks
    delta_norm: float  # NaN without a meta-update
    inner_steps: int  # taken so far, over all tasks


def run_steps(
    start: int,
    stop: int,
    inner_steps: int,
    method: Method,
    group: TaskGroup,
    meta: MetaLearner,
    exchange: Exchange = keep_here,
    on_step: Callable[[int], None] | None = None,
) -> list[StepRecord]:
    """Inner steps number start .. stop - 1 of a run, with every meta-update and shift in between."""
    travelling: Future[Tensor] | None = keep_here(meta.pending) if meta.pending is not None else None
    records = []
    for index in range(start, stop):
        record, travelling = take_step(Step.at(index, inner_steps), method, group, meta, exchange, travelling)
        records.append(record)
        if on_step:
            on_step(index)
    # A total still on its way is part of the state: it belongs to the next step, in this call or after a restart.
    meta.pending = travelling.result() if travelling is not None else None
    return records


def take_step(
    step: Step,
    method: Method,
    group: TaskGroup,
    meta: MetaLearner,
    exchange: Exchange,
    travelling: Future[Tensor] | None,
) -> tuple[StepRecord, Future[Tensor] | None]:
    """One inner step of every task, and the meta-update that follows it, if one does.

    With shift_delay 0 (the paper) the total is applied at once. With 1 it travels while the next gradient is computed:
    theta - phi is the same before and after a shift, so a late shift costs accuracy only in where gradients are taken.
    """
    if step.k == 1:
        group.begin_trajectory(meta.phi)
    losses = group.inner_step(meta.phi, step)
    norms = []

    def apply(total: Tensor) -> None:
        if total[-1] == 0:
            raise NonFiniteLoss("every task has diverged and was dropped; lower beta or alpha")
        delta = meta.update(total)
        group.shift(meta.phi, delta, step)
        norms.append(delta.norm().item())

    contribution = group.contribution(meta.phi, step) if method.updates_at(step) else None
    if travelling is not None:
        apply(travelling.result())
        travelling = None
    if contribution is not None:
        travelling = exchange(contribution)
        if method.shift_delay == 0 or step.k == step.K:
            apply(travelling.result())
            travelling = None
    norm = norms[-1] if norms else float("nan")
    return StepRecord(losses, norm, inner_steps=int(group.counts()[0])), travelling
