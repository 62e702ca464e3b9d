"""The loop itself: optimizers on both levels, one phi for all, exchanges between processes, tasks that diverge."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from rayctsl.config import METHOD_CONFIGS
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.group import NonFiniteLoss, TaskGroup
from rayctsl.learning.loop import run_steps
from rayctsl.learning.meta_learner import OuterLearner
from rayctsl.methods import build_method

TRAINED = [name for name, kind in METHOD_CONFIGS.items() if kind.trains]
RULES = [
    ({"optimizer": "sgd", "weight_decay": 0.2}, lambda p, rate: torch.optim.SGD(p, rate, weight_decay=0.2)),
    ({"optimizer": "momentum"}, lambda p, rate: torch.optim.SGD(p, rate, 0.9)),
    ({"optimizer": "nesterov"}, lambda p, rate: torch.optim.SGD(p, rate, 0.9, nesterov=True)),
    ({"optimizer": "adam", "weight_decay": 0.2}, lambda p, rate: torch.optim.Adam(p, rate, weight_decay=0.2)),
]
rules = pytest.mark.parametrize(("rule", "reference"), RULES, ids=[rule["optimizer"] for rule, _ in RULES])


@rules
def test_inner_optimizers(quadratics, engine_of, rule, reference):
    (task,) = quadratics(count=1).values()
    engine = engine_of(
        {task.name: task}, {"name": "shifting", "beta": 0.0}, inner_steps=10, inner={"alpha": 0.1, **rule}
    )
    module = task.build_module()
    optimizer = reference(module.parameters(), 0.1)
    for index in range(10):
        engine.run(index, index + 1)
        optimizer.zero_grad()
        task.loss(module, index).backward()
        optimizer.step()
        learned = engine.group.learners[task.name].flat.vector
        torch.testing.assert_close(learned, module().detach(), rtol=0, atol=1e-13)


@rules
def test_outer_optimizers(quadratics, engine_of, rule, reference):
    tasks = quadratics()
    engine = engine_of(tasks, {"name": "reptile", "beta": 0.3}, outer=rule, trajectories=5)
    phi = torch.nn.Parameter(engine.meta.phi.clone())
    optimizer = reference([phi], 0.3)
    for m in range(5):
        engine.run(4 * m, 4 * m + 4)
        thetas = torch.stack([learner.theta for learner in engine.group.active])
        phi.grad = phi.detach() - thetas.mean(0)
        optimizer.step()
        torch.testing.assert_close(engine.meta.phi, phi.detach(), rtol=0, atol=1e-13)


@rules
def test_theta_follows_what_the_outer_optimizer_really_did(quadratics, engine_of, rule, reference):
    # Without inner steps nothing but the first distance and the outer rule move phi, and every theta with it.
    engine = engine_of(quadratics(), {"name": "shifting", "beta": 0.3}, outer=rule, inner_steps=5)
    engine.run(0, 1)
    distances = [learner.theta - engine.meta.phi for learner in engine.group.active]
    for learner in engine.group.active:
        learner.config = learner.config.model_copy(
            update={"inner": learner.config.inner.model_copy(update={"alpha": 0.0})}
        )
    before = engine.meta.phi.clone()
    engine.run(1, 5)
    assert (engine.meta.phi - before).abs().max() > 0.05
    for learner, distance in zip(engine.group.active, distances, strict=True):
        torch.testing.assert_close(learner.theta - engine.meta.phi, distance, rtol=0, atol=1e-14)


def test_everyone_starts_from_one_phi(quadratics, engine_of):
    one, other = quadratics(count=1, seed=1)["quadratic-1"], quadratics(count=2, seed=2)["quadratic-2"]
    engine = engine_of({task.name: task for task in (one, other)}, "no_shifting", inner={"alpha": 0.0})
    engine.run(0, 1)
    assert len(engine.group.active) == 2
    for learner in engine.group.active:
        np.testing.assert_array_equal(learner.theta.numpy(), one.start[:4])


class Summing:
    """An exchange between threads that stand for processes: everybody hands in a vector and gets the sum."""

    def __init__(self, parties: int):
        self.barrier = threading.Barrier(parties, timeout=30)
        self.slots: list[torch.Tensor] = [torch.empty(0)] * parties

    def for_rank(self, rank: int, pool: ThreadPoolExecutor):
        def add_up(vector: torch.Tensor) -> torch.Tensor:
            self.slots[rank] = vector
            self.barrier.wait()
            total = torch.stack(self.slots).sum(0)
            self.barrier.wait()
            return total

        def exchange(vector: torch.Tensor) -> Future[torch.Tensor]:
            return pool.submit(add_up, vector)

        return exchange


def run_apart(engine: LocalEngine, packing: list[list[str]], chunks: list[int]) -> list[OuterLearner]:
    """The engine's problem in as many threads as there are packs; returns every thread's meta-learner."""
    problem, config = engine.problem, engine.problem.config
    summing, metas = Summing(len(packing)), [None] * len(packing)

    def process(rank: int) -> None:
        method = build_method(config.method, config.seed)
        tasks = [problem.build_task(name, "cpu") for name in packing[rank]]
        group, meta = TaskGroup(tasks, config, method), OuterLearner(config, method, engine.meta.phi)
        with ThreadPoolExecutor(1) as pool:
            exchange = summing.for_rank(rank, pool)
            for start, stop in zip([0, *chunks], chunks, strict=False):
                run_steps(start, stop, config.inner_steps, method, group, meta, exchange)
        metas[rank] = meta

    with ThreadPoolExecutor(len(packing)) as threads:
        for done in [threads.submit(process, rank) for rank in range(len(packing))]:
            done.result()
    return metas


PACKING = [["quadratic-1", "quadratic-3"], ["quadratic-2"], []]  # the last one is a meta-learner without tasks


@pytest.mark.parametrize(
    "method",
    [{"name": name} for name in TRAINED if name != "single"]
    + [{"name": "shifting", "aggregate_every": every, "shift_delay": 1} for every in (1, 3)],
    ids=lambda method: "-".join(map(str, method.values())),
)
def test_several_processes_compute_the_same(quadratics, engine_of, method):
    engine = engine_of(quadratics(), method)
    apart = run_apart(engine, PACKING, [3, 8])
    engine.run(0, 8)
    assert all(torch.equal(meta.phi, engine.meta.phi) for meta in apart)


@pytest.mark.parametrize("packs", [[[3, 0], [1, 4], [2]], [[4], [3], [2], [1], [0]], [[1, 3, 0, 4, 2]]])
def test_packing_does_not_change_a_bit(quadratics, engine_of, packs):
    engine = engine_of(quadratics(count=5), {"name": "shifting", "shift_delay": 1})
    names = engine.problem.task_names
    apart = run_apart(engine, [*([names[place] for place in pack] for pack in packs), []], [3, 8])
    engine.run(0, 8)
    assert all(torch.equal(meta.phi, engine.meta.phi) for meta in apart)


def test_a_step_beyond_the_limit_of_exact_sums_counts_as_diverged(quadratics, engine_of):
    tasks = quadratics()
    engine = engine_of(tasks, "reptile", inner={"alpha": 0.0})
    engine.run(0, 3)
    engine.group.learners["quadratic-2"].theta.add_(1024.0)
    with pytest.raises(NonFiniteLoss, match=r"task 'quadratic-2' diverged \(a pull .* beyond 1024 at inner step 4"):
        engine.run(3, 4)


def poison(task, at, value="loss"):
    """The task, with a loss (or only a gradient) that is not finite from batch `at` on."""

    class Poisoned(type(task)):
        def loss(self, module, index, *, held_out=False):
            loss = super().loss(module, index, held_out=held_out)
            if index < at:
                return loss
            zero = (module() - module().detach()).sum().clamp_min(0)
            return loss * float("nan") if value == "loss" else loss + zero.sqrt()  # sqrt is infinitely steep at 0

    return Poisoned(**vars(task))


@pytest.mark.parametrize("value", ["loss", "gradient"])
def test_a_diverging_task_stops_the_run_and_is_named(quadratics, engine_of, value):
    tasks = quadratics()
    tasks["quadratic-2"] = poison(tasks["quadratic-2"], 6, value)
    engine = engine_of(tasks, "shifting")
    engine.run(0, 6)
    before = engine.meta.phi.clone()
    with pytest.raises(NonFiniteLoss, match=r"task 'quadratic-2' diverged .* inner step 3 of trajectory 2"):
        engine.run(6, 8)
    assert torch.equal(engine.meta.phi, before)


def test_of_several_that_diverge_the_first_is_named(quadratics, engine_of):
    """By time, not by its place: the others may have been carried away by it."""
    tasks = quadratics()
    for name, at in (("quadratic-1", 7), ("quadratic-2", 5), ("quadratic-3", 6)):
        tasks[name] = poison(tasks[name], at)
    with pytest.raises(NonFiniteLoss, match=r"task 'quadratic-2' diverged .* inner step 2 of trajectory 2"):
        engine_of(tasks, "reptile").run(0, 8)


def test_a_diverging_task_is_named_before_the_meta_update(quadratics, engine_of):
    tasks = quadratics()
    tasks["quadratic-3"] = poison(tasks["quadratic-3"], 1)
    with pytest.raises(NonFiniteLoss, match=r"task 'quadratic-3' diverged .* inner step 2 of trajectory 1"):
        engine_of(tasks, "reptile").run(0, 8)


@pytest.mark.parametrize("value", ["loss", "gradient"])
@pytest.mark.parametrize("name", [name for name in TRAINED if name != "single"])
def test_a_dropped_task_is_as_if_it_had_not_been(quadratics, engine_of, name, value):
    tasks = quadratics()
    without = {key: task for key, task in tasks.items() if key != "quadratic-2"}
    tasks["quadratic-2"] = poison(tasks["quadratic-2"], 0, value)
    dropping, fewer = engine_of(tasks, name, on_non_finite="drop"), engine_of(without, name)
    chunk = dropping.run(0, 8)
    fewer.run(0, 8)
    assert torch.equal(dropping.meta.phi, fewer.meta.phi)
    assert np.isnan(chunk.losses[4:, 1]).all()
    assert np.isfinite(chunk.losses[:, [0, 2]]).all()


def test_a_task_whose_pull_is_too_large_is_told_of_up_to_that_step(quadratics, engine_of):
    """Its losses stay finite, and it goes on until its chunk ends: none of that counts."""
    engine = engine_of(quadratics(), "fomaml_shifting", on_non_finite="drop", inner={"alpha": 0.0})
    engine.run(0, 1)
    engine.group.learners["quadratic-2"].theta.add_(1e5)
    chunk = engine.run(1, 4)
    assert np.isfinite(chunk.losses[0]).all()
    assert np.isnan(chunk.losses[1:, 1]).all()
    inner, held_out, _ = engine.group.learners["quadratic-2"].counts.tolist()
    assert (inner, held_out) == (2, 2)  # with the gradient that was too large


def test_a_dropped_task_stays_away_after_a_restart(quadratics, engine_of):
    tasks = quadratics()
    tasks["quadratic-2"] = poison(tasks["quadratic-2"], 0, math.nan)
    first, second = (engine_of(tasks, "shifting", on_non_finite="drop") for _ in range(2))
    first.run(0, 8)
    second.start(first.capture(8).result())
    assert second.group.dropped == first.group.dropped == {"quadratic-2"}
    first.run(8, 12)
    second.run(8, 12)
    assert torch.equal(second.meta.phi, first.meta.phi)


def test_after_a_drop_the_mean_is_over_the_rest(quadratics, engine_of, phis_of):
    tasks = quadratics()
    plain = phis_of(engine_of(tasks, "shifting"), 0, 6)
    tasks["quadratic-2"] = poison(tasks["quadratic-2"], 5)
    engine = engine_of(tasks, "shifting", on_non_finite="drop")
    phis = phis_of(engine, 0, 6)
    np.testing.assert_array_equal(phis[:6], plain[:6])
    rest = [engine.group.learners[name].theta.numpy() - phis[6] for name in ("quadratic-1", "quadratic-3")]
    np.testing.assert_allclose(phis[6] - phis[5], 0.5 * np.mean(rest, axis=0), rtol=0, atol=1e-15)
    # A restart remembers who is out.
    resumed = LocalEngine(engine.problem)
    resumed.start(engine.capture(6).result())
    assert resumed.group.dropped == {"quadratic-2"}
    engine.run(6, 8)
    resumed.run(6, 8)
    assert torch.equal(resumed.meta.phi, engine.meta.phi)


def test_when_every_task_is_gone_the_run_stops(quadratics, engine_of):
    tasks = {name: poison(task, 2) for name, task in quadratics().items()}
    engine = engine_of(tasks, "shifting", on_non_finite="drop")
    with pytest.raises(NonFiniteLoss, match="every task has diverged"):
        engine.run(0, 8)
    assert engine.meta.phi.isfinite().all()


def test_a_process_may_lose_all_of_its_tasks(quadratics, engine_of):
    tasks = quadratics()
    tasks["quadratic-2"] = poison(tasks["quadratic-2"], 2)
    engine = engine_of(tasks, "shifting", on_non_finite="drop")
    apart = run_apart(engine, PACKING, [8])
    engine.run(0, 8)
    assert torch.equal(apart[0].phi, engine.meta.phi)
