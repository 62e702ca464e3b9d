"""Packing: longest first, order kept, never an idle learner."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rayctsl.cluster.balance import Balance
from rayctsl.cluster.packing import Packing, pack, utilisation
from rayctsl.contract import read_contract


def test_longest_first_by_hand():
    packing = pack({"a": 5, "b": 4, "c": 3, "d": 3, "e": 3}, 2)
    # 5 | 4 -> 5 | 4+3 -> 5+3 | 4+3 -> 5+3 | 4+3+3
    assert packing.learners == (("a", "d"), ("b", "c", "e"))
    assert packing.expected_utilisation == pytest.approx(18 / 20)


def test_no_learner_is_empty_even_with_free_tasks():
    assert all(pack({"a": 1.0, "b": 0.0, "c": 0.0}, 3).learners)
    with pytest.raises(ValueError, match="idle"):
        pack({"a": 1.0}, 2)


@pytest.mark.parametrize("num_learners", [2, 3, 4])
def test_close_to_the_best_packing_for_the_paper_sizes(num_learners):
    sizes = [64, 64, 32, 84, 84, 84, 28, 32]
    costs = {f"t{n}": float(size**2) for n, size in enumerate(sizes)}
    best = min(
        max(np.bincount(where, weights=list(costs.values()), minlength=num_learners))
        for where in product(range(num_learners), repeat=len(sizes))
    )
    assert pack(costs, num_learners).expected_utilisation >= 0.95 * sum(costs.values()) / (num_learners * best)


def test_survives_json():
    packing = pack({"a": 2, "b": 1, "c": 1}, 2)
    assert read_contract(Packing, packing.to_bytes(), "the packing") == packing


def test_reads_what_had_no_version_and_refuses_newer_ones():
    packing = pack({"a": 2, "b": 1, "c": 1}, 2)
    first = {"learners": [["a"], ["b", "c"]], "expected": 1.0}
    assert read_contract(Packing, first, "the packing") == packing
    with pytest.raises(ValueError, match="the packing was written by a newer rayctsl"):
        read_contract(Packing, {**packing.to_json(), "version": 3}, "the packing")


def test_utilisation_of_idle_learners():
    assert utilisation([1.0, 1.0]) == 1.0
    assert utilisation([0.0, 0.0]) == 1.0
    assert utilisation([1.0, 3.0]) == pytest.approx(2 / 3)


def test_slow_learners_get_less():
    costs = dict.fromkeys("abcdef", 1.0)
    assert pack(costs, 2, slowness=[1.0, 1.0]).learners == (("a", "c", "e"), ("b", "d", "f"))
    assert [len(names) for names in pack(costs, 2, slowness=[2.0, 1.0]).learners] == [2, 4]
    assert [len(names) for names in pack(costs, 3, slowness=[100.0, 1.0, 1.0]).learners] == [1, 3, 2]


def test_tasks_stay_where_moving_them_would_gain_nothing(monkeypatch):
    """The first learner has one long task: whoever has the others, everybody waits for it."""
    now = [0.0]
    monkeypatch.setattr("rayctsl.cluster.balance.time.monotonic", lambda: now[0])
    balance = Balance(tuple("abcde"))
    balance.costs = dict(zip("abcde", [3.0, 1.0, 1.0, 0.5, 0.4], strict=True))
    balance.begin(Packing(learners=(("a",), ("b", "c"), ("d", "e")), expected_utilisation=0.66))
    balance.note([3.0, 2.0, 0.9], steps=1)
    now[0] += 31
    assert pack(balance.costs, 3).learners != balance.packing.learners
    assert balance.improve() is None


def test_tasks_move_from_a_learner_that_turned_slow(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rayctsl.cluster.balance.time.monotonic", lambda: now[0])
    balance = Balance(("a", "b", "c", "d"))
    packing = balance.pack(2)
    balance.begin(packing)
    balance.note([2.0, 2.0], steps=10)
    assert balance.known
    assert balance.costs["a"] == 0.1
    now[0] += 31
    assert balance.improve() is None, "in balance"
    balance.note([6.0, 2.0], steps=10)
    assert balance.achieved == pytest.approx(8 / 12)
    assert balance.improve() is None, "too early to judge"
    now[0] += 31
    better = balance.improve()
    assert better is not None
    assert [len(names) for names in better.learners] == [1, 3]
