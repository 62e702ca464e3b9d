"""Tasks whose answers are known: quadratics of (backbone, head), with gradients written out by hand in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import build_config
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.learning.tasks import Task


class Point(nn.Module):
    """A point as a model. The head comes first, so that nothing may rely on the order of a module's parameters."""

    def __init__(self, start: np.ndarray, head: int):
        super().__init__()
        split = len(start) - head
        if head:
            self.head = nn.Parameter(torch.tensor(start[split:], dtype=torch.float64))
        self.backbone = nn.Parameter(torch.tensor(start[:split], dtype=torch.float64))

    def forward(self) -> Tensor:
        return torch.cat([self.backbone, self.head]) if hasattr(self, "head") else self.backbone


@dataclass(frozen=True)
class Quadratic:
    """loss(z) = 1/2 (z - c)^T A (z - c) of z = (backbone, head); c moves from batch to batch by `wobble`.

    Held-out batches have an A and c of their own: `matrices[1]` and `centres[1]`.
    """

    name: str
    matrices: np.ndarray  # [2, n, n]
    centres: np.ndarray  # [2, n]
    start: np.ndarray  # [n]
    head: int = 0
    wobble: float = 0.0

    def centre(self, index: int, held_out: bool = False) -> np.ndarray:
        return self.centres[int(held_out)] + self.wobble * np.sin(np.arange(len(self.start)) + 2.0 * index)

    def value(self, z: np.ndarray, index: int = 0, held_out: bool = False) -> float:
        offset = z - self.centre(index, held_out)
        return float(offset @ self.matrices[int(held_out)] @ offset / 2)

    def gradient(self, z: np.ndarray, index: int = 0, held_out: bool = False) -> np.ndarray:
        return self.matrices[int(held_out)] @ (z - self.centre(index, held_out))

    def build_module(self) -> nn.Module:
        return Point(self.start, self.head)

    def head_name(self, module: nn.Module) -> str | None:
        return "head" if self.head else None

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        offset = module() - torch.from_numpy(self.centre(index, held_out))
        return offset @ torch.from_numpy(self.matrices[int(held_out)]) @ offset / 2


def make_quadratics(
    count: int = 3, size: int = 4, head: int = 2, wobble: float = 0.3, seed: int = 0
) -> dict[str, Quadratic]:
    """Random tasks with curvatures between 1/2 and 2, one backbone to start from and a head for each."""
    random, total = np.random.default_rng(seed), size + head
    backbone = random.normal(size=size)
    tasks = {}
    for number in range(count):
        turns = np.linalg.qr(random.normal(size=(2, total, total)))[0]
        matrices = turns @ (random.uniform(0.5, 2, (2, total, 1)) * turns.transpose(0, 2, 1))
        start = np.concatenate([backbone, random.normal(size=head)])
        name = f"quadratic-{number + 1}"
        tasks[name] = Quadratic(name, matrices, random.normal(size=(2, total)), start, head, wobble)
    return tasks


def make_parabola(name: str, curvature: float, centre: float) -> Quadratic:
    """loss(x) = curvature / 2 (x - centre)^2 from x = 0, without a head: for sums on paper."""
    return Quadratic(name, np.full((2, 1, 1), curvature), np.full((2, 1), centre), np.zeros(1))


def build_engine(tasks: Mapping[str, Task], method: Mapping[str, Any] | str, **settings: Any) -> LocalEngine:
    """Some tasks in this process; plain SGD with alpha = 0.1, K = 4 and M = 2 unless told otherwise."""
    raw = {
        "inner_steps": 4,
        "trajectories": 2,
        "data": {"tasks": list(tasks)},
        "method": {"name": method, "beta": 0.5} if isinstance(method, str) else {"beta": 0.5, **method},
        **settings,
        "inner": {"optimizer": "sgd", "alpha": 0.1, "weight_decay": 0.0, **settings.get("inner", {})},
    }
    return LocalEngine(Problem.of(build_config(raw), tasks=tasks))


def run_through(engine: LocalEngine, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Run step by step; returns phi before the first and after every step, [steps + 1, n]."""
    phis = [engine.meta.phi.numpy().copy()]
    for index in range(start, engine.problem.config.total_steps if stop is None else stop):
        engine.run(index, index + 1)
        phis.append(engine.meta.phi.numpy().copy())
    return np.array(phis)


@pytest.fixture
def quadratics() -> Callable[..., dict[str, Quadratic]]:
    return make_quadratics


@pytest.fixture
def parabola() -> Callable[..., Quadratic]:
    return make_parabola


@pytest.fixture
def engine_of() -> Callable[..., LocalEngine]:
    return build_engine


@pytest.fixture
def phis_of() -> Callable[..., np.ndarray]:
    return run_through
