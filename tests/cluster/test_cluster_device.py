"""Learners with GPUs: by every transport the phi of one process on a CPU, and faults of a device are survived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from rayctsl.cluster.engine import RayEngine
from rayctsl.cluster.faults import is_device_fault
from rayctsl.cluster.resources import choose_num_learners, gpus_of, how_many
from rayctsl.config import TopologyConfig
from rayctsl.learning.engine import EngineFault, LocalEngine
from rayctsl.learning.problem import Problem
from tests import strict_device as accelerator

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def gpu_node(ray_nodes: Any) -> Iterator[Any]:
    node = ray_nodes.add_node(num_cpus=4, num_gpus=2)
    yield node
    ray_nodes.remove_node(node)


def on_strict_device(problem: Problem) -> Problem:
    moved = replace(problem, build_task=accelerator.OnStrictDevice(problem.build_task))
    accelerator.switch_off()  # here: the driver has no accelerator
    return moved


@pytest.mark.parametrize(
    "topology",
    [
        {"workers": 2, "gpus_per_learner": 0.5},  # one GPU for both: shared memory
        {"workers": 2},  # one each: a collective
        {"workers": 2, "transport": "objects"},
    ],
    ids=["fraction", "whole", "objects"],
)
def test_every_transport_learns_on_accelerators(gpu_node, tiny_problem, topology):
    problem = tiny_problem(2, topology=topology)
    here = LocalEngine(problem, "cpu")
    here.run(0, 6)
    engine = RayEngine(on_strict_device(problem), backend="gloo" if topology == {"workers": 2} else None)
    try:
        engine.start(None)
        assert "strict device (sham)" in engine.describe()
        engine.run(0, 4)
        state = engine.capture(4).result()
        engine.start(state)  # everyone back to the snapshot
        engine.run(4, 6)
        phi = engine.name_phi(engine.capture(6).result().meta["phi"])
        assert engine.on_learner(str) == "sham"
    finally:
        engine.close()
    expected = here.name_phi(here.meta.phi)
    assert all(type(value) is torch.Tensor and value.device.type == "cpu" for value in phi.values())
    for name, value in phi.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)


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


def test_a_device_that_fails_is_replaced_with_its_process(ray_cluster, tiny_problem, tmp_path):
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
    assert how_many("GPU", 2, 0.3) == 6  # three on each, and not 2 / 0.3
    assert how_many("CPU", 4, 0.3) == 13
