"""The best packing by clever search is the best by plain enumeration, and the comparison notices a bad packing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rayctsl.bench.packing import best_loads, compare
from rayctsl.cluster.packing import utilisation

PAPER = {name: float(size**2) for name, size in zip("abcdefgh", (64, 64, 32, 84, 84, 84, 28, 32), strict=True)}


def enumerated(costs: list[float], learners: int) -> float:
    """The smallest largest load over every way to place the tasks."""
    ways = product(range(learners), repeat=len(costs))
    return min(max(sum(c for c, w in zip(costs, way, strict=True) if w == n) for n in range(learners)) for way in ways)


@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_best_loads(learners: int, seed: int):
    costs = np.random.default_rng(seed).integers(1, 50, 6).astype(float).tolist()
    loads = best_loads(costs, learners)
    assert max(loads) == pytest.approx(enumerated(costs, learners))
    assert sum(loads) == pytest.approx(sum(costs))


@pytest.mark.parametrize("learners", [2, 3, 4])
def test_the_papers_sizes_are_packed_almost_as_well_as_possible(learners: int):
    assert compare(PAPER, PAPER, learners).ratio > 0.99


def test_a_packing_by_wrong_costs_is_seen():
    wrong = {name: 1.0 / cost for name, cost in PAPER.items()}
    row = compare(wrong, PAPER, 4)
    assert row.ratio < 0.8
    assert row.best_utilisation == pytest.approx(utilisation(best_loads(list(PAPER.values()), 4)))
