"""Every method by every transport through everything that a run does, on the strict device: the CPU's numbers.

A cell is a walk (`tests/device_walk.py`) by seven columns: train, snapshot, resume, drop, fine-tune, validate, job.
`make test` has one method of each kind in one process and by one transport, and `shifting` by each; `make test-all` has
all. That every method computes the same on the strict device and on Ray is held apart: `test_learning_device.py`,
`test_cluster_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayctsl.cluster.engine import RayEngine
from rayctsl.config import METHOD_CONFIGS
from rayctsl.learning.engine import LocalEngine
from tests import strict_device as accelerator
from tests.cluster.nodes import remove_node
from tests.device_walk import Outcome, make_data, problem_of, walk
from tests.kept_actors import Pool, keep_actors

METHODS = tuple(METHOD_CONFIGS)
TRANSPORTS: dict[str, dict[str, Any]] = {
    "shared_memory": {"workers": 2, "gpus_per_learner": 0.5},
    "collective": {"workers": 2, "gpus_per_learner": 1},
    "ray_calls": {"workers": 2, "gpus_per_learner": 1, "transport": "objects"},
}
# Neither has a task that could be dropped: `scratch` takes no step, `single` has one task.
WITHOUT_DROP = ("scratch", "single")
# One that moves phi at every step, one along the trajectory, one with gradients of its own, one of a single task.
KINDS = ("shifting", "leap", "fomaml", "single")
Reference = Callable[[str], Outcome]


def cells() -> list[Any]:
    """Every method by every transport; all but one of each kind and one method by every transport are `long`."""
    short = {("shifting", name) for name in TRANSPORTS} | set(zip(KINDS[1:], TRANSPORTS, strict=True))
    return [
        pytest.param(method, name, id=f"{method}-{name}", marks=[] if (method, name) in short else [pytest.mark.long])
        for method in METHODS
        for name in TRANSPORTS
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def on_cpu(root: str, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """What the CPU leaves, in one process; walked once for each method."""
    known: dict[str, Outcome] = {}

    def of(method: str) -> Outcome:
        if method not in known:
            folder = tmp_path_factory.mktemp("cpu")
            known[method] = walk(problem_of(method, root), lambda problem: LocalEngine(problem, "cpu"), folder)
        return known[method]

    return of


@pytest.fixture(scope="module")
def gpu_actors(ray_nodes: Any) -> Iterator[Pool]:
    """Actors that hold a sliver of a GPU and live from walk to walk, on a node that leaves two GPUs to engines."""
    node = ray_nodes.add_node(num_cpus=4, num_gpus=3)
    pool = Pool(num_gpus=0.001)
    yield pool
    pool.close()
    remove_node(ray_nodes, node)


def compare(found: Outcome, expected: Outcome) -> None:
    assert expected.devices == {"cpu"}
    assert found.devices == {accelerator.NAME}
    assert found.phi.keys() == expected.phi.keys()
    for name, value in found.phi.items():
        assert type(value) is torch.Tensor
        torch.testing.assert_close(value, expected.phi[name], rtol=1e-3, atol=1e-4, msg=name)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-3, atol=1e-4)
    assert found.dropped == expected.dropped
    np.testing.assert_allclose(found.finetuned, expected.finetuned, rtol=1e-2)
    assert found.validated == pytest.approx(expected.validated, abs=10.1)  # one of ten images
    assert found.job == pytest.approx(expected.job, rel=1e-2, abs=0.026)  # one of forty


@pytest.mark.parametrize(
    "method", [*KINDS, *(pytest.param(m, marks=pytest.mark.long) for m in METHODS if m not in KINDS)]
)
def test_in_one_process(strict_device: str, method: str, root: str, on_cpu: Reference, tmp_path: Path) -> None:
    accelerator.switch_off()
    expected = on_cpu(method)
    accelerator.switch_on()
    assert expected.dropped == (set() if method in WITHOUT_DROP else {"bad"})
    compare(walk(problem_of(method, root), LocalEngine, tmp_path), expected)


@pytest.mark.ray
@pytest.mark.parametrize(("method", "transport"), cells())
def test_over_processes(
    gpu_actors: Pool,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    transport: str,
    root: str,
    on_cpu: Reference,
    tmp_path: Path,
) -> None:
    keep_actors(gpu_actors, monkeypatch)
    problem = problem_of(method, root, **TRANSPORTS[transport])
    moved = replace(problem, build_task=accelerator.OnStrictDevice(problem.build_task))
    accelerator.switch_off()  # the driver has none

    def engine(problem: Any) -> RayEngine:
        return RayEngine(problem, measure_costs=False, backend="gloo" if transport == "collective" else None)

    compare(walk(moved, engine, tmp_path), on_cpu(method))
