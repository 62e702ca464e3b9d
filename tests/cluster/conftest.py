"""Small runs for the engine's tests: tiny tasks that every process can build by itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rayctsl.config import Config, ModelConfig, build_config
from rayctsl.learning.problem import Problem
from rayctsl.learning.run_folder import RunFolder


class TinyTask:
    """A small network with batch norm on random images: everything that a real task has, in milliseconds."""

    def __init__(self, name: str, num_classes: int, slow_seconds: float = 0.0):
        self.name, self.num_classes, self.slow_seconds = name, num_classes, slow_seconds

    def build_module(self) -> nn.Module:
        from rayctsl.models import build_model

        return build_model(ModelConfig(name="resnet8", width=4), self.num_classes, seed=0)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        import time
        import zlib

        time.sleep(self.slow_seconds)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name}/{held_out}/{index}".encode()))
        images = torch.randn(8, 3, 8, 8, generator=generator)
        labels = torch.randint(0, self.num_classes, (8,), generator=generator)
        return nn.functional.cross_entropy(module(images), labels)


@pytest.fixture
def tiny_problem() -> Callable[..., Problem]:
    """A problem over `num_tasks` tiny tasks; keyword arguments are config keys."""

    def make(num_tasks: int = 4, slow_seconds: float = 0.0, **keys: Any) -> Problem:
        tasks = {f"task-{n}": TinyTask(f"task-{n}", 3 + n, slow_seconds) for n in range(num_tasks)}
        raw: dict[str, Any] = {"inner_steps": 5, "trajectories": 2, "snapshot_every": 3, **keys}
        config: Config = build_config({**raw, "data": {"tasks": list(tasks)}})
        return Problem.of(config, tasks=tasks)

    return make


@pytest.fixture
def new_folder(tmp_path: Path) -> Callable[[Problem], RunFolder]:
    """A fresh run folder for a problem."""

    def make(problem: Problem) -> RunFolder:
        return RunFolder.open(str(tmp_path / uuid.uuid4().hex[:8]), problem.config)

    return make
