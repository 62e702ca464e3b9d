"""Every measurement, as small as can be: it runs, and its last line is the JSON that others read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rayctsl.bench import delay
from rayctsl.bench.delay import SlowExchange
from rayctsl.bench.plan_check import RING_WORK, PackedRun, check_rings
from rayctsl.bench.transport import SIZES
from rayctsl.bench.workload import Workload
from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.testbed import answers, call_inside
from rayctsl.commands.bench import main

TINY = Workload("resnet8", 2, 4, (8, 8), (3, 4))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("against", [(), ("obvious",)], ids=["limit", "obvious"])
def test_step(kept_actors: None, capsys: pytest.CaptureFixture[str], against: tuple[str, ...]):
    small = ["--model", "demo", "--sizes", "8,8", "--batch-size", "4", "--steps", "2", "--rounds", "2"]
    result = run(capsys, "step", *small, *([] if against else ["--no-obvious"]))
    rates = [result[name] for name in ("steps_per_s", "limit_steps_per_s", *(f"{n}_steps_per_s" for n in against))]
    assert all(rate > 0 for rate in rates)
    for name in ("efficiency", *(f"speedup_over_{n}" for n in against)):
        low, high = result[f"{name}_spread"]
        assert 0 < low <= result[name] <= high
    assert sorted(name for names in result["packing"] for name in names) == ["made-0-8", "made-1-8"]


@pytest.mark.long
def test_inner(capsys: pytest.CaptureFixture[str]):
    result = run(
        capsys,
        "inner",
        "--model",
        "demo",
        "--size",
        "8",
        "--options",
        "default_in_thread",
        "--steps",
        "2",
        "--rounds",
        "1",
    )
    assert result["default_in_thread"]["speedup"] == pytest.approx(
        result["plain"]["ms"] / result["default_in_thread"]["ms"]
    )


@pytest.mark.ray
@pytest.mark.long
def test_transport(ray_cluster: str, capsys: pytest.CaptureFixture[str]):
    small = ["--workers", "2", "--models", "resnet20", "--tasks", "3", "--steps", "5", "--rounds", "1", "--no-delay"]
    result = run(capsys, "transport", *small)
    (row,) = result["rows"]
    assert min(row["ms"], row["gloo_ms"]) > 0
    assert result["share_of_one_tasks_step"] == pytest.approx(row["ms"] / result["resnet20_step_ms"])
    assert result["share_of_step"] == pytest.approx(result["share_of_one_tasks_step"] / 2)  # two tasks a learner


def test_a_slowed_exchange_is_the_same_exchange_later():
    started = time.perf_counter()
    total = SlowExchange(lambda vector: 2 * vector, 0.05)(torch.ones(3))
    assert time.perf_counter() - started >= 0.05  # later is what it is for
    assert total.tolist() == [2, 2, 2]


def test_prompt_and_late_shifts_are_slowed_alike(kept_actors: None, monkeypatch: pytest.MonkeyPatch):
    slowed = list[tuple[int, bool]]()
    slow_engine = delay.slow_engine

    def watched(engine: RayEngine, seconds: float) -> None:
        slow_engine(engine, seconds)
        slowed.append((engine.problem.config.method.shift_delay, seconds > 0))

    monkeypatch.setattr(delay, "slow_engine", watched)
    delay.hidden_share(1, TINY, steps=1)
    assert slowed == [(0, False), (0, True), (1, False), (1, True)]


def test_a_checked_run_has_the_packing_that_was_asked_for(kept_actors: None, tmp_path: Path):
    TINY.make_data(tmp_path)
    run = PackedRun(TINY, tmp_path, ((1,), (0,)))
    try:
        assert answers([call_inside(learner, tasks_of) for learner in run.engine.learners]) == run.packing
    finally:
        run.engine.close()


def tasks_of(worker: Any) -> list[str]:
    return list(worker.group.learners)


@pytest.mark.ray
@pytest.mark.long
def test_late_shifts_hide_a_slow_exchange(kept_actors: None):
    result = delay.hidden_share(3, TINY, steps=10)
    assert result["delay_slowed_ratio"] > 1, "the exchange was not slowed"
    # Most is hidden; a busy machine may make late steps slower for other reasons, so not all of it is asked for.
    assert result["delay_hidden"] > 0.2


@pytest.mark.ray
@pytest.mark.long
def test_against_another_checkout_takes_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["step", "--against", str(tmp_path), "--json"]) == 2
    assert "is no checkout of rayctsl" in capsys.readouterr().err


@pytest.mark.long
def test_against_another_checkout(capsys: pytest.CaptureFixture[str]):
    """Against itself; each side has a Ray of its own."""
    small = ["--model", "demo", "--sizes", "8,8", "--batch-size", "4", "--steps", "2", "--rounds", "2"]
    result = run(capsys, "step", *small, "--against", str(Path(__file__).parents[2]))
    assert 0 < result["ratio_spread"][0] <= result["ratio"] <= result["ratio_spread"][1]
    assert result["cpu_ratio"] > 0


@pytest.mark.ray
def test_ahead(kept_actors: None, capsys: pytest.CaptureFixture[str]):
    result = run(capsys, "ahead", "--rounds", "2", "--chunks", "3", "--steps", "2", "--work-ms", "1")
    assert result["awaited_ms"] > 0
    assert result["ahead_ms"] > 0
    assert len(result["speedup_spread"]) == 2


def test_scale(kept_actors: None, capsys: pytest.CaptureFixture[str]):
    small = ["--tasks", "1,2", "--workers", "1,2", "--work-ms", "1", "--steps", "3", "--rounds", "1"]
    result = run(capsys, "scale", *small, "--start-rounds", "0")
    assert [(row["tasks"], row["workers"]) for row in result["rows"]] == [(1, 1), (2, 1), (2, 2)]
    assert all(row["step_ms"] > row["overhead_ms"] > 0 for row in result["rows"])
    assert result["step_fit"]["per_task_ms"] == pytest.approx(
        result["rows"][1]["step_ms"] - result["rows"][0]["step_ms"]
    )


@pytest.mark.ray
@pytest.mark.slow
def test_packing(kept_actors: None, capsys: pytest.CaptureFixture[str]):
    small = ["--model", "demo", "--sizes", "8,8,16", "--batch-size", "4", "--steps", "1", "--rounds", "1"]
    result = run(capsys, "packing", *small, "--workers", "2,3")
    assert [row["workers"] for row in result["rows"]] == [2, 3]
    assert result["lowest_ratio"] <= 1
    assert 0 < result["run_on_two_learners"]["utilisation"] < 1


def test_plan_for_gpus_that_are_not_here(capsys: pytest.CaptureFixture[str]):
    command = ("plan", "--workers", "4,8,64", "--gpus", "8", "--bandwidth", "10,100", "--markdown")
    result = run(capsys, *command, "--launch-ms", "20")
    rows = {(row["workers"], row["gigabits"], row["shift_delay"]): row for row in result["rows"]}
    assert len(rows) == 12
    assert rows[8, 10, 0]["bytes_between_nodes"] == 0
    assert rows[64, 10, 0]["exchange_s"] > rows[64, 100, 0]["exchange_s"]
    assert rows[64, 10, 1]["steps_per_s"] > rows[64, 10, 0]["steps_per_s"]
    assert rows[4, 10, 0]["steps_per_s"] == pytest.approx(rows[8, 10, 0]["steps_per_s"], rel=0.3), (
        "packing makes up for it"
    )
    by_task = result["task_costs"]
    assert by_task["cub"]["gflop"] / by_task["cifar100"]["gflop"] == pytest.approx((84 / 32) ** 2, rel=0.02)
    # ResNet-20 at 32 pixels: 41 million multiply-adds an image forward, two operations each, thrice with the backward.
    assert by_task["cifar100"]["gflop"] == pytest.approx(128 * 0.041 * 2 * 3, rel=0.03)
    assert result["assumptions"]["model"] == "resnet20"
    slower = run(capsys, *command, "--launch-ms", "520")["rows"]
    eight = next(row for row in slower if row["workers"] == 8)
    assert eight["compute_s"] - rows[8, 10, 0]["compute_s"] == pytest.approx(0.5), "a task a learner: one launch a step"


def test_plan_for_processors_measures_here(capsys: pytest.CaptureFixture[str], tmp_path: Any):
    config = tmp_path / "small.yaml"
    config.write_text("model: {name: resnet8, width: 4}\ndata: {tasks: [svhn, fashion_mnist], batch_size: 8}\n")
    result = run(capsys, "plan", "--config", str(config), "--workers", "1,2", "--cores", "1")
    one, two = (row for row in result["rows"] if row["shift_delay"] == 0)
    assert one["exchange_s"] == 0
    assert two["nodes"] == 2
    assert two["exchange_s"] > 0
    assert one["compute_s"] > two["compute_s"] > 0


@pytest.mark.long
def test_the_planner_foresees_a_throttled_ring():
    rows = check_rings(1, 5, rings=((2, 20e6, 1e-3),))
    # A busy machine makes everything slower; but nobody wakes before its time, so there is a floor.
    work, messages = RING_WORK[0] + RING_WORK[2], 2 * (1e-3 + 4 * SIZES["resnet20"] / 2 / 20e6)
    assert rows[0].measured_ms > 990 * (work + messages)
    assert rows[1].measured_ms > 990 * work
    assert all(row.ratio == pytest.approx(row.measured_ms / row.predicted_ms) for row in rows)
    assert all(row.ratio > 0.8 for row in rows)  # the prediction has no more in it than sleeps


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["inner", "--options", "magic"]) == 2
    assert "option 'magic' is unknown" in capsys.readouterr().err
    assert main(["plan", "--config", "no-such.yaml"]) == 2
