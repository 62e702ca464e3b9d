"""Small runs for the engine's tests: tiny tasks that every process can build by itself."""

from __future__ import annotations

import os
import signal
import uuid
import zlib
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
    """A small network with batch norm on random images: everything that a real task has, in milliseconds.

    `dies` kills the process that computes batch number `at`, the first time: with the path of a file that remembers it.
    """

    def __init__(self, name: str, num_classes: int, dies: tuple[Path, int] | None = None):
        self.name, self.num_classes, self.dies = name, num_classes, dies

    def build_module(self) -> nn.Module:
        from rayctsl.models import build_model

        return build_model(ModelConfig(name="resnet8", width=4), self.num_classes, seed=0)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        if self.dies and index == self.dies[1] and not self.dies[0].exists():
            self.dies[0].write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name}/{held_out}/{index}".encode()))
        images = torch.randn(8, 3, 8, 8, generator=generator)
        labels = torch.randint(0, self.num_classes, (8,), generator=generator)
        return nn.functional.cross_entropy(module(images), labels)


@pytest.fixture
def tiny_problem() -> Callable[..., Problem]:
    """A problem over `num_tasks` tiny tasks, the last of which may die; keyword arguments are config keys."""

    def make(num_tasks: int = 4, dies: tuple[Path, int] | None = None, **keys: Any) -> Problem:
        tasks = {f"task-{n}": TinyTask(f"task-{n}", 3 + n) for n in range(num_tasks)}
        tasks[f"task-{num_tasks - 1}"].dies = dies
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
