"""Learners with GPUs: how many there are, and faults of a device are survived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import ray
import torch

from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.faults import is_device_fault
from rayctsl.cluster.resources import choose_num_learners, gpus_of, how_many
from rayctsl.config import TopologyConfig
from rayctsl.learning.engine import EngineFault, LocalEngine
from tests.cluster.nodes import remove_node

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def gpu_node(ray_nodes: Any) -> Iterator[Any]:
    node = ray_nodes.add_node(num_cpus=4, num_gpus=2)
    yield node
    remove_node(ray_nodes, node)


class Failing:
    """A task whose device fails at one step, in the first process that comes there."""

    def __init__(self, task: Any, marker: str):
        self.name, self.task, self.marker = task.name, task, marker

    def build_module(self) -> Any:
        return self.task.build_module()

    def head_name(self, module: Any) -> Any:
        return self.task.head_name(module)

    def loss(self, module: Any, index: int, *, held_out: bool = False) -> torch.Tensor:
        import os

        if index == 2 and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")
        return self.task.loss(module, index, held_out=held_out)


def test_a_device_that_fails_is_replaced_with_its_process(kept_actors, tiny_problem, tmp_path, monkeypatch):
    problem = tiny_problem(1, topology={"workers": 1})
    build_task = problem.build_task
    marker = str(tmp_path / "failed")
    failing = replace(problem, build_task=lambda name, device: Failing(build_task(name, device), marker))
    here = LocalEngine(problem, "cpu")
    here.run(0, 4)
    engine = RayEngine(failing)
    try:
        engine.start(None)
        first = engine.capture(0).result()
        victim = engine.learners[0]
        with monkeypatch.context() as patch:
            patch.setattr(ray, "kill", lambda actor: None)  # as when Ray takes its time: the victim still answers
            with pytest.raises(EngineFault, match="uncorrectable ECC"):
                engine.run(0, 4)
        engine.start(first)
        assert engine.learners[0] is not victim
        engine.run(0, 4)
        assert torch.equal(engine.capture(4).result().meta["phi"], here.meta.phi)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (torch.AcceleratorError("an illegal memory access was encountered"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (RuntimeError("NCCL error in: ProcessGroupNCCL.cpp"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_a_fault_of_the_device_is_not_one_of_the_program(error, fault):
    assert is_device_fault(error) == fault


def test_gpus_are_taken_where_there_are_any(gpu_node):
    assert gpus_of(TopologyConfig()) == 1
    assert gpus_of(TopologyConfig(gpus_per_learner=0)) == 0
    assert choose_num_learners(TopologyConfig(), 8) == 2, "as many as GPUs, with several tasks each"
    assert choose_num_learners(TopologyConfig(workers=8), 8) == 2
    assert choose_num_learners(TopologyConfig(gpus_per_learner=0.2), 20) == 4, "bounded by the CPUs of that node"


def test_shares_are_counted_without_rounding_errors():
    assert how_many("GPU", 8, 0.2) == 40  # 8 // 0.2 is 39
    assert how_many("GPU", 3, 0.4) == 6  # two on each, and not 3 / 0.4
    assert how_many("CPU", 4, 0.3) == 13
