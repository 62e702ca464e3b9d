"""What the measurements make of their seconds: medians and ratios by hand."""

from __future__ import annotations

import pytest
import torch

from rayctsl.bench import delay, inner, plan, plan_check, scale, step, transport
from rayctsl.bench.data import share_of
from rayctsl.bench.scale import linear_fit
from rayctsl.config import ModelConfig, build_config, load_config
from rayctsl.models import build_model


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


def test_what_an_option_is_compared_with_is_the_same_network():
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    ours, plain = (build_model(ModelConfig(name="resnet8", width=4), 5, seed=0).eval() for _ in range(2))
    inner.make_plain(plain)
    torch.testing.assert_close(plain(images), ours(images))


@pytest.mark.parametrize(("late", "share"), [((2.0, 2.0), 1.0), ((2.0, 2.25), 0.75), ((5.0, 6.0), 0.0)])
def test_hidden_share(late, share):
    assert delay.hidden((2.0, 3.0), late) == pytest.approx(share)


def test_every_round_of_a_ring_is_divided_by_its_own_steps(monkeypatch):
    worker = object.__new__(plan_check.RingWorker)
    clock = iter([10.0, 14.0, 20.0, 23.0])
    monkeypatch.setattr(plan_check.time, "perf_counter", lambda: next(clock))
    worker.step, ran = 0, []
    worker._run = lambda start, stop: ran.append((start, stop))
    assert [worker(2), worker(3)] == [2.0, 1.0]
    assert ran == [(0, 2), (2, 5)]


def test_the_start_that_is_measured_has_as_many_learners_as_the_bare_program_has_beside_its_meta_learner(monkeypatch):
    seen = []
    monkeypatch.setattr(scale, "_bare_start", lambda actors: seen.append(actors) or (1.0, 2.0))

    def our_start(folder, number):
        seen.append(load_config(f"{folder}/start.yaml").topology.workers)
        return 3.0

    monkeypatch.setattr(scale, "_our_start", our_start)
    result = scale.start_cost(1, workers=3)
    assert seen == [4, 3]
    assert (result["start_ratio"], result["start_ratio_to_driver"]) == (1.5, 3.0)


def test_seconds_of_one_core_are_measured_on_one():
    config = build_config({"model": {"name": "resnet8", "width": 4}, "data": {"tasks": ["svhn"], "batch_size": 4}})
    torch.set_num_threads(2)
    try:
        plan.task_costs(config, measured=False)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


MAPS = """\
7f5c6c000000-7f5c6c021000 r--s 00000000 08:01 42                         /data/train.arrow
Size:               1024 kB
Rss:                1000 kB
Pss:                 250 kB
Pss_Dirty:             0 kB
VmFlags: rd mr me ms
7f5c6c021000-7f5c6c031000 rw-p 00000000 08:01 43                         /lib/libc.so.6
Rss:                  64 kB
Pss:                  64 kB
7f5c6c031000-7f5c6c041000 r--s 00021000 08:01 42                         /data/train.arrow
Rss:                   8 kB
Pss:                   2 kB
"""


def test_a_mapped_page_that_four_processes_share_counts_as_a_quarter_for_each():
    assert share_of("/data/train.arrow", MAPS) == 252


def test_linear_fit():
    assert linear_fit([1], [5.0]) == {}
    fit = linear_fit([1, 2, 4], [5.0, 7.0, 11.0])
    assert (fit["at_zero_ms"], fit["per_task_ms"], fit["r_squared"]) == pytest.approx((3, 2, 1))
