"""What an actor does, in this process: it takes over everything of a snapshot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rayctsl.cluster.actors import Worker
from rayctsl.cluster.exchange import Connection, PeerLost
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


class Garbling:
    """An exchange that is called off under way and returns garbage, as an aborted collective of NCCL does."""

    wait_seconds = 0.0

    def __init__(self, worker: Worker):
        self.worker, self.calls = worker, 0

    def __call__(self, vector: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            assert self.worker.connection is not None
            self.worker.connection.abort()
            return vector * torch.nan
        return vector

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_chunk_that_was_called_off_is_no_result(tiny_problem) -> None:
    """Neither what the garbage led to is told, nor is the chunk behind it in the queue computed."""
    problem = tiny_problem(2)
    worker = Worker()
    worker.host(problem, problem.task_names, "test")
    worker.begin({"phi": LocalEngine(problem).meta.phi}, None)
    garbling = Garbling(worker)
    worker.connection = Connection(garbling, in_background=False)
    for start in (0, 3):
        with pytest.raises(PeerLost, match="called off"):
            worker.run(start, start + 3)
    assert garbling.calls == 3
