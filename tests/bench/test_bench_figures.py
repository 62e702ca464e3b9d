"""What the measurements make of their seconds: medians and ratios by hand."""

from __future__ import annotations

import pytest

from rayctsl.bench import delay, inner, step, transport
from rayctsl.bench.scale import linear_fit


def test_step_efficiency_is_ours_over_the_limit_and_speedup_ours_over_the_obvious():
    rounds = [(8.0, 10.0, 2.0), (9.0, 10.0, 3.0), (3.0, 4.0, 1.0)]
    names = ("steps_per_s", "limit_steps_per_s", "obvious_steps_per_s")
    result = step.summarise([dict(zip(names, rates, strict=True)) for rates in rounds])
    assert [result[name] for name in names] == [8.0, 10.0, 2.0]
    assert (result["efficiency"], result["efficiency_spread"]) == (0.8, [0.75, 0.9])
    assert (result["speedup_over_obvious"], result["speedup_over_obvious_spread"]) == (3.0, [3.0, 4.0])


def test_step_without_the_obvious_program():
    result = step.summarise([{"steps_per_s": 1.0, "limit_steps_per_s": 4.0}])
    assert result["efficiency"] == 0.25
    assert "speedup_over_obvious" not in result


def test_transport_ratio_is_ours_over_gloo_in_the_same_round():
    rounds = [(0.001, 0.002, 0.0005), (0.003, 0.002, 0.001), (0.002, 0.001, 0.002)]
    result = transport.AgainstGloo.of("resnet20", 2, rounds)
    assert (result.ms, result.gloo_ms, result.float32_ms) == (2.0, 2.0, 1.0)
    assert (result.ratio, result.ratio_spread) == (1.5, (0.5, 2.0))
    assert (result.float32_ratio, result.float32_ratio_spread) == (2.0, (1.0, 3.0))


def test_inner_speedup_is_plain_over_the_option():
    result = inner.summarise({"plain": [4.0, 6.0, 8.0], "default": [2.0, 2.0, 2.0]}, {"plain": 9.0, "default": 7.0})
    assert result["plain"]["speedup"] == 1
    assert result["default"] == {"ms": 2000, "speedup": 3.0, "speedup_spread": [2.0, 4.0], "first_step_s": 7.0}
    assert result["speedup"] == 3.0


@pytest.mark.parametrize(("late", "share"), [((2.0, 2.0), 1.0), ((2.0, 2.25), 0.75), ((5.0, 6.0), 0.0)])
def test_hidden_share(late, share):
    assert delay.hidden((2.0, 3.0), late) == pytest.approx(share)


def test_linear_fit():
    assert linear_fit([1], [5.0]) == {}
    fit = linear_fit([1, 2, 4], [5.0, 7.0, 11.0])
    assert (fit["at_zero_ms"], fit["per_task_ms"], fit["r_squared"]) == pytest.approx((3, 2, 1))
