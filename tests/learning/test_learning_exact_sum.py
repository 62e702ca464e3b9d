"""Sums of contributions: the same bits for every partition and order, and nothing that is not finite gets in."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rayctsl.config import build_config
from rayctsl.learning.exact_sum import Grid, Unrounded
from rayctsl.methods import build_method


def grid_for(num_tasks: int, **keys: object) -> Grid:
    config = build_config({"data": {"tasks": [f"t{n}" for n in range(num_tasks)]}, **keys})
    return Grid.of(config, build_method(config.method, 0))


def add_up(grid: Grid, contributions: list[Tensor], groups: list[list[int]]) -> Tensor:
    """Each group by itself, in its order, then the groups' sums: what learners, nodes and transports do."""
    sums = []
    for group in groups:
        total = grid.no_tasks(contributions[0])
        for number in group:
            grid.add(total, contributions[number])
        sums.append(total)
    return torch.stack(sums).sum(0)


def multiples(grid: Grid, value: float, dtype: torch.dtype) -> list[int]:
    total = grid.no_tasks(torch.zeros(1, dtype=dtype))
    grid.add(total, torch.tensor([value], dtype=dtype))
    return [int(word) for word in total[:-2].tolist()]


def partition(chance: random.Random, count: int) -> list[list[int]]:
    order = chance.sample(range(count), count)
    cuts = sorted(chance.sample(range(1, count), chance.randint(0, count - 1))) if count > 1 else []
    return [order[start:stop] for start, stop in zip([0, *cuts], [*cuts, count], strict=True)]


sizes = st.sampled_from([1e-45, 1e-20, 1e-12, 1e-6, 1e-3, 1.0, 30.0, 1023.0])
entries = st.builds(lambda size, share: size * share, sizes, st.floats(-1, 1, width=32))


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 12).flatmap(
        lambda t: st.lists(st.lists(entries, min_size=3, max_size=3), min_size=t, max_size=t)
    ),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**32),
)
def test_partitions_and_orders_do_not_change_a_bit(rows: list[list[float]], dtype: torch.dtype, seed: int):
    contributions = [torch.tensor(row, dtype=dtype) for row in rows]
    grid, chance = grid_for(len(rows)), random.Random(seed)
    reference = add_up(grid, contributions, [list(range(len(rows)))])
    for _ in range(4):
        other = add_up(grid, contributions, partition(chance, len(rows)))
        assert reference.numpy().tobytes() == other.numpy().tobytes()
    assert reference[-1] == len(rows)
    # No addition was rounded: every word of the total is the sum of the contributions' words as integers.
    finest = Fraction(1, 2 ** (grid.unit_bits + (grid.rest_bits if dtype == torch.float64 else 0)))
    for place in range(3):
        values = [contribution[place].item() for contribution in contributions]
        words = [sum(column) for column in zip(*(multiples(grid, value, dtype) for value in values), strict=True)]
        assert [int(word) for word in reference[place:-2:3].tolist()] == words
        kept = Fraction(words[0], 2**grid.unit_bits) + (Fraction(words[1]) * finest if len(words) > 1 else 0)
        assert abs(sum(map(Fraction, values)) - kept) <= len(rows) * finest / 2


def test_the_order_of_arrival_does_not_show_where_plain_sums_would_differ():
    grid, contributions = grid_for(3), [torch.tensor([value]) for value in (700.0, 1e-13, -700.0)]
    totals = [add_up(grid, contributions, [list(order)]) for order in itertools.permutations(range(3))]
    assert len({total.numpy().tobytes() for total in totals}) == 1


@pytest.mark.parametrize("num_tasks", [1, 2, 3, 8, 9, 1000, 1024, 1025])
def test_sums_at_the_limit_stay_exact(num_tasks: int):
    grid = grid_for(num_tasks)
    for dtype in (torch.float32, torch.float64):
        limit = torch.tensor([2.0**grid.limit_bits], dtype=dtype)
        largest = torch.nextafter(limit, limit / 2)
        total = add_up(grid, [largest] * num_tasks, [list(range(num_tasks))])
        assert total[-1] == num_tasks, "all of them fit"
        words = multiples(grid, largest.item(), dtype)
        assert [int(word) for word in total[:-2].tolist()] == [num_tasks * word for word in words]
        assert 2**50 < num_tasks * words[0] <= 2**52, "no finer grid would do with a bit to spare"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1024.0, -1024.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_finite_or_beyond_the_limit_changes_nothing(bad: float, dtype: torch.dtype):
    grid, contribution = grid_for(8), torch.full((5,), 0.1, dtype=dtype)
    total = grid.no_tasks(contribution)
    assert grid.add(total, contribution)
    before = total.clone()
    contribution[3] = bad
    assert not grid.add(total, contribution)
    assert torch.equal(total, before)


@pytest.mark.parametrize("grid", [grid_for(8), Unrounded()], ids=["rounded", "unrounded"])
def test_who_has_diverged_takes_no_part_any_more_however_finite(grid: Grid):
    contribution = torch.tensor([3.0, 4.0])
    total = grid.no_tasks(contribution)
    assert not grid.add(total, contribution, torch.tensor(False))
    assert not total.any()
    assert grid.add(total, contribution, torch.tensor(True))
    assert total[-1] == 1


def test_the_grid_is_a_function_of_the_config():
    assert grid_for(8) == Grid(limit_bits=10, unit_bits=39, rest_bits=49)
    assert grid_for(8, topology={"workers": 3}, seed=5) == grid_for(8)
    leap = grid_for(8, method={"name": "leap"}, inner_steps=1000)  # adds up 1000 unit vectors before it speaks
    assert leap == Grid(limit_bits=20, unit_bits=29, rest_bits=49)


def test_the_mean_is_the_tasks_mean():
    grid = grid_for(3)
    contributions = [torch.tensor([1.0, -2.0]), torch.tensor([2.0, 0.5]), torch.tensor([3.0, 0.0])]
    total = add_up(grid, contributions, [[2], [0, 1]])
    assert grid.mean(total, contributions[0]).tolist() == [2.0, -0.5]


def test_the_mean_square_is_that_of_the_tasks_lengths():
    grid = grid_for(2)
    contributions = [torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0])]
    assert grid.mean_square(add_up(grid, contributions, [[1], [0]])) == 13.0
    largest = torch.full((4,), 1023.0)  # squared lengths of this size would not add up exactly
    assert grid.mean_square(add_up(grid, [largest, largest], [[0], [1]])) == 2.0 ** (grid.rest_bits - 30)


def test_unrounded_sums_have_the_tasks_mean_and_mean_square_too():
    grid, contributions = Unrounded(), [torch.tensor([3.0, -4.0]).double(), torch.tensor([0.0, 1.0]).double()]
    total = add_up(grid, contributions, [[0, 1]])
    assert grid.mean(total, contributions[0]).tolist() == [1.5, -1.5]
    assert grid.mean_square(total) == 13.0
