"""The exchange inside a node, its members as threads of this process: everyone gets the same bits, in a fixed order."""

from __future__ import annotations

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rayctsl.cluster.exchange import PeerLost, SharedMemoryPlan, connect, shared_memory
from rayctsl.cluster.exchange.connection import Connection, add_up
from rayctsl.cluster.exchange.ray_calls import Collector, Contributor, Message, RayCallsPlan, join_ray_calls
from rayctsl.cluster.exchange.shared_memory import SEGMENT_FOLDERS, SharedMemory, _make_segment
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.exact_sum import BLOCK
from rayctsl.learning.loop import run_steps


def one_by_one(vectors: list[Tensor]) -> Tensor:
    total = vectors[0].clone()
    for vector in vectors[1:]:
        total = total + vector
    return total


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_all_vectors_are_added(size: int):
    vectors = list(torch.randint(-(2**40), 2**40, (4, size), generator=torch.Generator().manual_seed(0)).double())
    assert torch.equal(add_up(vectors, torch.empty(size).double()), one_by_one(vectors))


@pytest.mark.parametrize(("slots", "readers"), [(1, 1), (2, 1), (3, 1), (3, 0)])
@pytest.mark.parametrize("size", [2, 3 * BLOCK + 1])
def test_every_member_gets_every_total(slots: int, readers: int, size: int):
    """Many exchanges one after the other: a total may not be overwritten while a slow reader still looks at it."""
    members, rounds, segment = slots + readers, 20, f"rayctsl-test-{uuid.uuid4().hex[:8]}"
    vectors = torch.randn(rounds, slots, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def take_part(place: int) -> list[Tensor]:
        connection = connect(SharedMemoryPlan(segment, size, members, slots, place), timeout_seconds=60)
        own = vectors[:, place] if place < slots else torch.zeros(rounds, size)
        totals = [connection(vector).result().clone() for vector in own]
        connection.close()
        return totals

    with ThreadPoolExecutor(members) as pool:
        seen = list(pool.map(take_part, range(members)))
    expected = [one_by_one(list(vectors[number])) for number in range(rounds)]
    for totals in seen:
        assert all(torch.equal(total, right) for total, right in zip(totals, expected, strict=True))


class OtherNode:
    """Plays the collective between nodes: adds what another node has to say in each round."""

    def __init__(self, sums: list[Tensor]):
        self.sums = iter(sums)

    def __call__(self, total: Tensor) -> None:
        total.add_(next(self.sums))

    def close(self) -> None:
        pass


def test_a_node_without_learners_adds_nothing():
    """As where the meta-learner has a node to itself: its last total is not part of the next."""
    sums = [torch.full((3,), float(number)) for number in (5, 7, 11)]
    plan = SharedMemoryPlan(f"rayctsl-test-{uuid.uuid4().hex[:8]}", 3, members=1, slots=0, seat=0, nodes=2)
    connection = SharedMemory(plan, 60, OtherNode(sums))  # type: ignore[arg-type]
    totals = [connection(torch.zeros(3)).clone() for _ in sums]
    connection.close()
    assert [total.tolist() for total in totals] == [each.tolist() for each in sums]


def test_memory_that_is_not_there_is_not_promised():
    name = f"rayctsl-test-{uuid.uuid4().hex[:8]}"
    with pytest.raises(OSError, match="no room for"):
        _make_segment(name, 2**50)
    assert not [each for folder in SEGMENT_FOLDERS for each in os.listdir(folder) if each.startswith(name)]


def test_where_the_first_folder_has_no_room_everybody_finds_the_memory_in_the_second(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "SEGMENT_FOLDERS", (str(tmp_path / "nowhere"), str(tmp_path)))
    made = _make_segment("segment", 100)
    assert (made, os.path.getsize(made)) == (str(tmp_path / "segment"), 100)
    assert shared_memory._find_segment("segment") == made
    shared_memory.remove_segment("segment")
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_its_node_is_woken_and_leaves_nothing():
    segment = f"rayctsl-test-{uuid.uuid4().hex[:8]}"
    called_off: list[str] = []
    between: Any = SimpleNamespace(abort=lambda: called_off.append("abort"), close=lambda: called_off.append("close"))
    member = SharedMemory(SharedMemoryPlan(segment, 3, members=2, slots=2, seat=0, nodes=2), 5, between)
    member.abort()
    with pytest.raises(PeerLost, match="called off"):
        member(torch.ones(3))
    member.close()
    assert called_off == ["abort", "close"], "those on other nodes are not waited for either"
    assert not [each for folder in SEGMENT_FOLDERS for each in os.listdir(folder) if each.startswith(segment)]


@pytest.mark.parametrize("learners", [1, 3, 300])
def test_ray_calls_give_everyone_every_total(learners: int):
    """With the calls as plain calls: learners may be ahead of the meta-learner, and old messages come late."""
    rounds = 3
    vectors = torch.randint(-(2**40), 2**40, (rounds, learners, 4), generator=torch.Generator().manual_seed(2)).double()
    callers: list[Contributor] = []
    collector = Collector("now", 60, learners, lambda message: [caller.receive(message) for caller in callers])
    callers += [Contributor("now", 60, collector.hand_in) for _ in range(learners)]
    collector.hand_in(Message("before", 1, vectors[0, 0].numpy()))
    with ThreadPoolExecutor(learners) as pool:
        seen = list(pool.map(lambda n: [callers[n](vectors[r, n]) for r in range(rounds)], range(learners)))
    seen.append([collector(torch.zeros(4)) for _ in range(rounds)])
    for totals in seen:
        assert torch.equal(torch.stack(totals), vectors.sum(1))


def test_a_total_is_where_the_vector_was(strict_device: str):
    vector = torch.arange(3.0, dtype=torch.float64).to(strict_device)
    connection = connect(SharedMemoryPlan(f"rayctsl-test-{uuid.uuid4().hex[:8]}", 3, 1, 1, 0), timeout_seconds=60)
    callers: list[Contributor] = []
    collector = Collector("now", 60, 1, lambda message: [caller.receive(message) for caller in callers])
    callers.append(Contributor("now", 60, collector.hand_in))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(callers[0], vector)
        totals = [connection(vector).result(), collector(torch.zeros_like(vector)), answer.result()]
        for total in totals:
            assert total.device.type == vector.device.type != "cpu"
            assert total.cpu().tolist() == [0, 1, 2]
    connection.close()


def test_ray_calls_that_wait_are_woken():
    caller = Contributor("now", 60, lambda message: None)
    threading.Timer(0.05, caller.abort).start()
    with pytest.raises(PeerLost, match="called off"):
        caller(torch.zeros(2))
    with pytest.raises(PeerLost, match="no total"):
        Contributor("now", 0.01, lambda message: None)(torch.zeros(2))


def test_a_total_of_an_earlier_group_is_nobodys():
    caller = Contributor("now", 0.01, lambda message: None)
    caller.receive(Message("before", 1, torch.zeros(2).numpy()))
    with pytest.raises(PeerLost, match="no total"):
        caller(torch.zeros(2))


def test_who_leaves_wakes_its_thread():
    """The exchange may be in a thread of its own, which nobody else would end."""
    caller = Contributor("now", 5, lambda message: None)
    connection = Connection(caller, in_background=True)
    waiting = connection(torch.zeros(2))
    connection.close()
    with pytest.raises(PeerLost, match="called off"):
        waiting.result()


def test_each_side_of_ray_calls_waits_as_long_as_the_run_says():
    meta_learner = SimpleNamespace(hand_in=SimpleNamespace(remote=print))
    plans = RayCallsPlan("now", 1, meta_learner=meta_learner), RayCallsPlan("now", 1, learners=())
    assert [join_ray_calls(plan, 7.0).timeout for plan in plans] == [7.0, 7.0]


def test_a_silent_member_is_named():
    segment = f"rayctsl-test-{uuid.uuid4().hex[:8]}"
    connection = connect(SharedMemoryPlan(segment, 3, members=2, slots=1, seat=0), timeout_seconds=0.05)
    try:
        with pytest.raises(PeerLost, match=r"no news of members \[1\]"):
            connection(torch.ones(3))
    finally:
        connection.close()


class HeldUntilTheNextGradient:
    """An exchange of one process; its first `held` calls end only when the gradient after them has been begun."""

    wait_seconds = 0.0

    def __init__(self, learner: Any, held: int):
        self.held, self.compute = held, learner.compute_gradient
        self.begun, self.calls, self.overlapped = 0, 0, list[bool]()
        self.changed = threading.Condition()
        learner.compute_gradient = self.compute_gradient

    def compute_gradient(self, *arguments: Any, **options: Any) -> Any:
        with self.changed:
            self.begun += 1
            self.changed.notify_all()
        return self.compute(*arguments, **options)

    def __call__(self, vector: Tensor) -> Tensor:
        self.calls += 1
        with self.changed:
            patience = 60.0 if self.calls <= self.held else 0.0
            self.overlapped.append(self.changed.wait_for(lambda: self.begun > self.calls, patience))
        return vector

    def abort(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(("delay", "overlapped"), [(1, [True, True, True, False]), (0, [False] * 4)])
def test_late_shifts_travel_while_the_next_gradient_is_computed(tiny_problem, delay, overlapped):
    """All but the last of a trajectory, which everyone waits for."""
    method = {"name": "shifting", "beta": 0.1, "shift_delay": delay}
    engine = LocalEngine(tiny_problem(1, inner_steps=4, method=method))
    exchange = HeldUntilTheNextGradient(engine.first, held=sum(overlapped))
    connection = Connection(exchange, in_background=delay > 0)
    run_steps(0, 4, 4, engine.method, engine.group, engine.meta, connection)
    connection.close()
    assert exchange.overlapped == overlapped
