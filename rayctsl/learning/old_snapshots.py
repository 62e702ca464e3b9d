"""Snapshots of before the weights of convolutions lay channels last in theta and phi, put into today's order."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rayctsl.learning.problem import Problem
from rayctsl.learning.snapshot import OLD_LAYOUT, RunState
from rayctsl.learning.task_learner import InnerLearner

ELSEWHERE = ("buffer.", "head", "loss", "count", "dropped")  # parts of the names of what is no vector like theta


def in_todays_layout(state: RunState, problem: Problem) -> RunState:
    """The state as it is, or with the backbone's weights where today's learners look for them."""
    if not state.facts.get(OLD_LAYOUT):
        return state
    learner = InnerLearner(problem.build_task(problem.task_names[0], "cpu"), problem.config)
    order = learner.flat.channels_last_order()
    tasks = {name: _reorder(tensors, order) for name, tensors in state.tasks.items()}
    facts = {name: fact for name, fact in state.facts.items() if name != OLD_LAYOUT}
    return replace(state, meta=_reorder(state.meta, order), tasks=tasks, facts=facts)


def _reorder(tensors: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    size = len(order)

    def moved(name: str, value: Tensor) -> Tensor:
        if value.ndim != 1 or len(value) < size or any(part in name for part in ELSEWHERE):
            return value
        # A backbone, maybe followed by what is left of it after rounding (a pending total), then the head or a count.
        parts = 2 if name.startswith("pending") and len(value) > 2 * size else 1
        whole = [value[size * part : size * (part + 1)][order] for part in range(parts)]
        return torch.cat([*whole, value[size * parts :]])

    return {name: moved(name, value) for name, value in tensors.items()}
