"""Learners on an accelerator: the CPU's numbers within rounding, and nothing in a chunk that the host waits for."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayctsl.config import METHOD_CONFIGS, FinetuneConfig, build_config
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.device import OutOfMemory
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.group import NonFiniteLoss, TaskGroup
from rayctsl.learning.problem import Problem
from rayctsl.learning.tasks import ImageTask
from rayctsl.methods import Step, build_method
from rayctsl.models import build_model
from tests.strict_device import counts

TRAINED = [name for name, config in METHOD_CONFIGS.items() if config.trains]
WAITS = ("read", "blocking copy", "synchronize")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("grey", "colour"):
        shape = (8, 8, 1 if name == "grey" else 3)
        for part in ("train", "test"):
            images = random.integers(0, 256, (40, *shape), dtype=np.uint8)
            info = SplitInfo(name, part, shape, tuple("abcd"))
            write_split(folder / name / f"{part}.arrow", images, np.arange(40) % 4, info)
    return str(folder)


def config_of(root: str, method: Any = "shifting", **keys: Any):
    method = {"beta": 0.05, **({"name": method} if isinstance(method, str) else method)}
    data = {"tasks": ["grey", "colour"], "root": root, "batch_size": 8}
    model = {"name": "resnet8", "width": 4}
    return build_config({"inner_steps": 3, "trajectories": 2, "model": model, "data": data, "method": method, **keys})


def waits() -> dict[str, int]:
    return {name: counts[name] for name in WAITS}


@pytest.mark.parametrize(
    "method", [*TRAINED, {"name": "shifting", "shift_delay": 1}], ids=lambda m: m if isinstance(m, str) else "late"
)
def test_every_method_computes_the_same_and_waits_once_per_chunk(strict_device, root, method):
    problem = Problem.of(config_of(root, method))
    here, there = LocalEngine(problem, "cpu"), LocalEngine(problem)
    assert there.first.theta.device.type == strict_device
    there.run(0, 1)
    counts.clear()
    one = there.run(1, 2)
    one_step = waits()
    counts.clear()
    rest = there.run(2, 6)
    assert waits() == one_step == {"read": 0, "blocking copy": 1, "synchronize": 0}, "the read at the chunk's end"
    chunk = here.run(0, 6)
    phi, expected = there.name_phi(there.meta.phi), here.name_phi(here.meta.phi)
    for name, value in phi.items():
        assert value.device.type == "cpu"
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)
    losses = np.concatenate([one.losses, rest.losses])
    np.testing.assert_allclose(losses, chunk.losses[1:], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(rest.counts, chunk.counts)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam"])
def test_no_optimizer_waits(strict_device, root, optimizer):
    engine = LocalEngine(Problem.of(config_of(root, inner={"optimizer": optimizer}, outer={"optimizer": optimizer})))
    engine.run(0, 1)
    counts.clear()
    engine.run(1, 6)
    assert waits() == {"read": 0, "blocking copy": 1, "synchronize": 0}


def test_a_snapshot_of_one_device_continues_on_the_other(strict_device, root):
    problem = Problem.of(config_of(root, "leap", inner={"optimizer": "adam"}))
    whole = LocalEngine(problem)
    whole.run(0, 6)
    for first, second in (("cpu", strict_device), (strict_device, "cpu"), (strict_device, strict_device)):
        begun, resumed = LocalEngine(problem, first), LocalEngine(problem, second)
        begun.run(0, 4)
        state = begun.capture(4).result()
        tensors = [*state.meta.values(), *(value for task in state.tasks.values() for value in task.values())]
        assert {tensor.device.type for tensor in tensors} == {"cpu"}
        resumed.start(state)
        resumed.run(4, 6)
        torch.testing.assert_close(resumed.meta.phi.cpu(), whole.meta.phi.cpu(), rtol=1e-3, atol=1e-4)


class OwnTask:
    """A task that has never heard of devices."""

    name = "own"

    def __init__(self, bad_from: float = math.inf):
        self.bad_from = bad_from

    def build_module(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))

    def head_name(self, module: nn.Module) -> str | None:
        return "2"

    def loss(self, module, index, *, held_out=False):
        points = torch.randn(5, 4, generator=torch.Generator().manual_seed(index + 1000 * held_out))
        loss = nn.functional.cross_entropy(module(points), torch.arange(5) % 2)
        return loss * math.nan if index >= self.bad_from else loss


class DeviceTask(OwnTask):
    """One that has."""

    def on_device(self, device):
        moved = DeviceTask(self.bad_from)
        moved.device = device
        return moved

    def build_module(self):
        return super().build_module().to(self.device)

    def loss(self, module, index, *, held_out=False):
        points = torch.randn(5, 4, generator=torch.Generator().manual_seed(index + 1000 * held_out)).to(self.device)
        return nn.functional.cross_entropy(module(points), torch.arange(5, device=self.device) % 2)


@pytest.mark.parametrize("kind", [OwnTask, DeviceTask])
@pytest.mark.parametrize("method", ["shifting", "imaml"])
def test_own_tasks_learn_on_an_accelerator(strict_device, kind, method):
    config = build_config({"inner_steps": 3, "data": {"tasks": ["own"]}, "method": {"name": method, "beta": 0.1}})
    problem = Problem.of(config, tasks={"own": kind()})
    here, there = LocalEngine(problem, "cpu"), LocalEngine(problem)
    assert there.first.theta.device.type == strict_device
    here.run(0, 6)
    there.run(0, 6)
    torch.testing.assert_close(there.meta.phi.cpu(), here.meta.phi, rtol=1e-4, atol=1e-6)


def test_own_datasets_learn_on_an_accelerator(strict_device, root):
    config = config_of(root)
    named, own = (
        Problem.of(config),
        Problem.of(config, tasks={name: open_dataset(name, root) for name in config.data.tasks}),
    )
    engines = [LocalEngine(problem) for problem in (named, own)]
    for engine in engines:
        engine.run(0, 4)
    assert torch.equal(engines[0].meta.phi.cpu(), engines[1].meta.phi.cpu())


def test_drop_is_exact_whatever_the_chunks(strict_device, root):
    config = config_of(root, on_non_finite="drop", data={"tasks": ["grey", "own"], "root": root, "batch_size": 8})

    class Poisoned(ImageTask):
        def loss(self, module, index, *, held_out=False):
            loss = super().loss(module, index, held_out=held_out)
            return loss * math.nan if self.name == "colour" and index >= 2 else loss

    def build(name, device):
        return Poisoned(open_dataset("colour" if name == "own" else name, root), config, device=device)

    problem = Problem(config, ("grey", "colour"), build)
    whole, apart = LocalEngine(problem), LocalEngine(problem)
    chunk = whole.run(0, 6)
    pieces = [apart.run(step, step + 1) for step in range(6)]
    assert torch.equal(whole.meta.phi.cpu(), apart.meta.phi.cpu())
    assert whole.group.dropped == {"colour"}
    np.testing.assert_array_equal(chunk.losses, np.concatenate([piece.losses for piece in pieces]))
    assert chunk.inner_steps.tolist() == [2, 4, 6, 7, 8, 9]
    assert [int(piece.inner_steps[0]) for piece in pieces] == [2, 4, 6, 7, 8, 9]
    assert chunk.counts.tolist() == pieces[-1].counts.tolist()


def test_stop_names_the_first_bad_step_at_the_end_of_the_chunk(strict_device):
    config = build_config({"inner_steps": 3, "data": {"tasks": ["own"]}})
    engine = LocalEngine(Problem.of(config, tasks={"own": OwnTask(bad_from=4)}))
    engine.run(0, 4)
    phi = engine.meta.phi.cpu()
    with pytest.raises(NonFiniteLoss, match=r"task 'own' diverged .* inner step 2 of trajectory 2"):
        engine.run(4, 6)
    assert torch.equal(engine.meta.phi.cpu(), phi)


def test_a_task_that_does_not_fit_is_named_with_what_to_change(strict_device, root, monkeypatch):
    engine = LocalEngine(Problem.of(config_of(root)))

    def refuse(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(engine.group.learners["colour"], "compute_gradient", refuse)
    named = (
        r"task 'colour' does not fit on strict device .* batches of 8 .*next to 1 other tasks: lower data.batch_size"
    )
    with pytest.raises(OutOfMemory, match=named):
        engine.run(0, 1)
    held_out = LocalEngine(Problem.of(config_of(root, "fomaml")))
    monkeypatch.setattr(held_out.group.learners["colour"], "held_out_gradient", refuse)
    with pytest.raises(OutOfMemory, match=named):
        held_out.run(0, 3)
    monkeypatch.setattr(ImageTask, "build_module", refuse)
    with pytest.raises(OutOfMemory, match=r"task 'grey' does not fit"):
        LocalEngine(Problem.of(config_of(root)))


def test_a_fine_tuning_that_does_not_fit_says_so(strict_device, root, monkeypatch):
    each = tuner(open_dataset("colour", root), FinetuneConfig(steps=1, batch_size=8), strict_device)

    def refuse(step: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(each, "batches", refuse)
    with pytest.raises(
        OutOfMemory, match=r"fine-tuning on 'colour' does not fit on strict .* batches of 8 .*batch_size"
    ):
        each.run()


def test_precision_is_a_named_choice(root):
    for precision, expected in (("tf32", True), ("bf16", False), ("tf32", True), ("fp32", False)):
        TaskGroup([], config_of(root, precision=precision), build_method(config_of(root).method))
        assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == expected
        assert torch.backends.cudnn.benchmark


def test_deterministic_runs_ask_torch_for_it_and_compute_the_same(root, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    plain, strict = LocalEngine(Problem.of(config_of(root))), None
    plain.run(0, 4)
    try:
        strict = LocalEngine(Problem.of(config_of(root, deterministic=True)))
        strict.run(0, 4)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(strict.meta.phi, plain.meta.phi)


def test_a_group_without_tasks_follows_a_snapshot():
    """The meta-learner's: it takes part in every exchange, and is set back with the others."""
    config = build_config({"inner_steps": 3, "data": {"tasks": ["own"]}})
    method = build_method(config.method)
    group = TaskGroup([], config, method)
    group.load_states({})
    phi = torch.zeros(4)
    assert group.inner_step(phi, Step(0, 1, 3)).shape == (0,)
    assert group.contribution(phi, Step(0, 1, 3))[-1] == 0


@pytest.mark.parametrize("optimizer", ["nesterov", "adam"])
def test_fine_tuning_computes_the_same_and_waits_at_its_points_alone(strict_device, root, optimizer):
    dataset = open_dataset("colour", root)
    config = FinetuneConfig(steps=6, batch_size=8, evaluate_every=3, optimizer=optimizer, alpha=0.01)
    here, there = (tuner(dataset, config, device) for device in ("cpu", strict_device))
    here.run()
    there.run(2)
    counts.clear()
    there.run(3)  # a point: the losses since the last one, and the number of right answers
    assert waits() == {"read": 1, "blocking copy": 1, "synchronize": 0}
    counts.clear()
    there.run(5)
    assert not counts
    resumed = tuner(dataset, config, strict_device)
    resumed.load_state(there.state())
    for each in (there, resumed):
        each.run()
        assert [point.step for point in each.curve] == [3, 6]
        for point, expected in zip(each.curve, here.curve, strict=True):
            assert point.loss == pytest.approx(expected.loss, rel=1e-3)
            assert point.accuracy == pytest.approx(expected.accuracy, abs=0.051)


def tuner(dataset: Dataset, config: FinetuneConfig, device: str) -> Finetuner:
    module = build_model(build_config({"model": {"name": "resnet8", "width": 4}}).model, dataset.num_classes, 0)
    return Finetuner(module, dataset, config, seed=0, device=device)
