"""What an actor does, in this process: it takes over everything of a snapshot."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from rayctsl.cluster.actors import Worker
from rayctsl.cluster.exchange import Connection, PeerLost
from rayctsl.cluster.note import note_name, read_note
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


class Slow:
    """An exchange that has waited two seconds at every call."""

    def __init__(self) -> None:
        self.wait_seconds = 100.0  # of chunks before

    def __call__(self, vector: Tensor) -> Tensor:
        self.wait_seconds += 2.0
        return vector

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_chunks_part_tells_of_this_chunk_alone(tiny_problem) -> None:
    problem = tiny_problem(2)
    worker = Worker()
    worker.host(problem, problem.task_names, "test")
    size = worker.begin({"phi": LocalEngine(problem).meta.phi}, None)
    worker.connection = Connection(Slow(), in_background=False)
    for start, stop in ((0, 3), (3, 5)):
        part = worker.run(start, stop)
        assert (part.stall_seconds, part.bytes_sent) == (2.0 * (stop - start), 8 * size * (stop - start))
        assert part.counts.tolist() == [2 * stop, 0, 0], "gradients are counted from the beginning"


def test_who_has_done_a_chunk_is_at_no_task(tiny_problem) -> None:
    """What dies while the next one is awaited does not die of the task that came last."""
    problem = tiny_problem(2)
    worker = Worker()
    worker.host(problem, problem.task_names, "test")
    worker.begin({"phi": LocalEngine(problem).meta.phi}, None)
    worker.run(0, 2)
    assert read_note(note_name("test", os.getpid())) is None
