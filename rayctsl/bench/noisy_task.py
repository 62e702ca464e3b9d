"""A problem that costs next to nothing and has everything that a real one has."""

from __future__ import annotations

import time
import zlib

import torch
from torch import Tensor, nn

from rayctsl.config import ModelConfig, build_config
from rayctsl.learning.problem import Problem
from rayctsl.models import build_model


class NoisyTask:
    """A small network with batch norm on random images; `slow_seconds` leaves time for kills to hit."""

    def __init__(self, name: str, slow_seconds: float):
        self.name, self.slow_seconds = name, slow_seconds

    def build_module(self) -> nn.Module:
        return build_model(ModelConfig(name="resnet8", width=4), 5, seed=0)

    def head_name(self, module: nn.Module) -> str | None:
        return "head"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        time.sleep(self.slow_seconds)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name}/{index}".encode()))
        images = torch.randn(8, 3, 8, 8, generator=generator)
        return nn.functional.cross_entropy(module(images), torch.randint(0, 5, (8,), generator=generator))


def noisy_problem(num_learners: int, steps: int, transport: str, slow_seconds: float, cpus: float = 1) -> Problem:
    """For so many learners, one of which has two tasks; three trajectories."""
    tasks = {f"task-{n}": NoisyTask(f"task-{n}", slow_seconds) for n in range(num_learners + 1)}
    topology = {"workers": num_learners, "cpus_per_learner": cpus, "transport": transport}
    lengths = {"inner_steps": max(1, steps // 3), "trajectories": 3, "snapshot_every": max(1, steps // 20)}
    raw = {**lengths, "data": {"tasks": list(tasks)}}
    config = build_config({**raw, "topology": topology, "method": {"name": "shifting", "beta": 0.1}})
    return Problem.of(config, tasks=tasks)
