"""Comparisons: pairing removes what seeds share, and the table says what is beyond chance."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rayctsl.config import ModelConfig
from rayctsl.jobs.comparison import compare
from rayctsl.jobs.standings import format_standings, rank
from rayctsl.learning.start import Start
from tests.jobs.conftest import RANDOM, RECIPE


def test_paired_differences_against_hand_computed_ones():
    # Seeds differ by 30 points, the starts by exactly 2, 3 and 4 on each: only pairing sees that.
    first, second = rank({"worse": [48.0, 77.0, 16.0], "better": [50.0, 80.0, 20.0]})
    assert (first.name, first.mean, first.behind) == ("better", 50.0, 0.0)
    assert (second.name, second.behind) == ("worse", 3.0)
    assert second.behind_interval == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert second.interval > 50
    table = format_standings([first, second])
    assert "50.00 ± 74.5" in table
    assert "3.00 ± 2.48 %*" in table


def test_the_best_is_who_is_best_on_average():
    first, second = rank({"lucky": [90.0, 10.0], "steady": [60.0, 60.0]})
    assert (first.name, first.behind) == ("steady", 0.0)
    assert (second.name, second.behind) == ("lucky", 10.0)


def test_random_weights_are_what_to_be_ahead_of():
    table = format_standings(rank({"none": [48.0, 77.0, 16.0], "start": [50.0, 80.0, 20.0]})).splitlines()
    assert table[0].endswith("ahead of none")
    assert table[1].endswith(" 3.00 ± 2.48 %*")
    assert table[2].endswith(" 3.00 ± 2.48 %*")  # behind the best
    assert len(table[2]) < len(table[1])
    worse = format_standings(rank({"none": [50.0, 80.0, 20.0], "start": [48.0, 77.0, 16.0]})).splitlines()
    assert worse[2].endswith(" -3.00 ± 2.48 %*"), "a loss beyond chance has its star too"


def test_a_single_seed_has_no_interval():
    standings = rank({"a": [50.0], "b": [40.0]})
    table = format_standings(standings)
    assert json.loads(json.dumps([each.to_json() for each in standings], allow_nan=False))[1]["behind"] == 10
    assert "±" not in table
    assert "*" not in table


def test_every_start_sees_the_same_seeds(stripes):
    seen, threads = [], set()

    def tell(name: str, seed: int) -> None:
        seen.append((name, seed))
        threads.add(torch.get_num_threads())

    recipe = RECIPE.model_copy(update={"steps": 4, "evaluate_every": 4})
    starts = {"narrow": RANDOM, "wider": Start("none", ModelConfig(name="resnet8", width=6))}
    results = compare(starts, stripes, recipe, threads=2, watch=lambda name: lambda seed, point: tell(name, seed))
    assert list(results) == ["narrow", "wider"]
    assert seen == [("narrow", 0), ("narrow", 1), ("wider", 0), ("wider", 1)]
    assert threads == {2}
