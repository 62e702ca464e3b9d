"""A recorded and replayed gradient is the eager one, bit for bit, from buffers that never move."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayctsl.config import build_config
from rayctsl.data.store import SplitInfo, write_split
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.graphs import WARM_UPS
from rayctsl.learning.problem import Problem
from rayctsl.learning.tasks import ImageTask


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("data")
    for part in ("train", "test"):
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        info = SplitInfo("small", part, (8, 8, 3), tuple("abcd"))
        write_split(folder / "small" / f"{part}.arrow", images, np.arange(40) % 4, info)
    return str(folder)


def problem_of(root: str, method: str = "shifting", **keys) -> Problem:
    data = {"tasks": ["small"], "root": root, "batch_size": 8}
    raw = {"inner_steps": 3, "model": {"name": "resnet8", "width": 4}, "data": data, "method": {"name": method}}
    return Problem.of(build_config({**raw, **keys}))


@pytest.mark.parametrize("method", ["shifting", "fomaml_shifting", "anil", "accurate"])
def test_replayed_steps_have_the_bits_of_eager_ones(strict_device, root, method):
    eager, replayed = (LocalEngine(problem_of(root, method, graphs=choice)) for choice in ("off", "auto"))
    eager.run(0, 5)
    replayed.run(0, 5)
    assert eager.first.recorder is None
    recorded = replayed.first.recorder.recorded
    assert (
        set(recorded)
        == {
            "shifting": {"training"},
            "fomaml_shifting": {"training", "held out"},
            "anil": {"head", "held out"},
            "accurate": {"training"},
        }[method]
    )
    if method == "shifting":
        assert recorded["training"].graph.replays == 5
    for name, value in eager.first.state().items():
        assert torch.equal(replayed.first.state()[name].cpu(), value.cpu()), name
    assert torch.equal(replayed.meta.phi.cpu(), eager.meta.phi.cpu())


def test_what_is_recorded_stays_where_it_is(strict_device, root):
    engine = LocalEngine(problem_of(root))
    engine.run(0, 1)
    learner, found = engine.first, engine.first.recorder.recorded["training"]

    def addresses() -> list[int]:
        tensors = [found.plan, found.loss, learner.flat.vector, learner.flat.grad, *learner.flat.buffers().values()]
        return [tensor.inner.data_ptr() for tensor in tensors]

    before = addresses()
    engine.start(engine.capture(1).result())  # a snapshot is loaded into the same memory
    engine.run(1, 4)
    assert addresses() == before
    assert engine.first.recorder.recorded["training"] is found
    for parameter in learner.module.parameters():
        assert parameter.grad is not None


class Reading(ImageTask):
    """A task that looks at a number, which a recording cannot hold."""

    calls = 0

    def planned_loss(self, module, plan, *, held_out=False):
        Reading.calls += 1
        loss = super().planned_loss(module, plan, held_out=held_out)
        if Reading.calls > WARM_UPS:
            loss.item()
        return loss


def test_a_failed_recording_is_said_in_one_line_and_left_out(strict_device, root, capsys):
    plain = problem_of(root, graphs="off")
    problem = problem_of(root)
    task = problem.build_task("small", strict_device)
    reading = Problem(problem.config, problem.task_names, lambda n, d: Reading(task.dataset, problem.config, device=d))
    expected, engine = LocalEngine(plain), LocalEngine(reading)
    expected.run(0, 3)
    engine.run(0, 3)
    assert torch.equal(engine.meta.phi.cpu(), expected.meta.phi.cpu())
    lines = [line for line in capsys.readouterr().out.splitlines() if "graphs" in line]
    assert len(lines) == 1
    assert "graphs are off for task 'small': operation not permitted when stream is capturing" in lines[0]
