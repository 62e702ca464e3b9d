"""What an actor does, in this process: it takes over everything of a snapshot."""

from __future__ import annotations

import torch

from rayctsl.cluster.actors import Worker
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.meta_learner import PENDING


def test_a_worker_takes_over_everything_of_a_snapshot(tiny_problem) -> None:
    """The outer optimizer's momentum and the shift that is still on its way included."""
    method = {"name": "shifting", "beta": 0.1, "shift_delay": 1}
    problem = tiny_problem(2, method=method, outer={"optimizer": "momentum"})
    engine = LocalEngine(problem)
    engine.run(0, 3)
    state = engine.capture(3).result()
    assert {"phi", PENDING} < set(state.meta)
    worker = Worker()
    worker.host(problem, problem.task_names, "test")
    worker.begin(state.meta, state.tasks)
    taken = worker.capture_meta()
    assert taken.keys() == state.meta.keys()
    assert all(torch.equal(taken[name], value) for name, value in state.meta.items())
