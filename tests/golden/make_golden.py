"""Short trajectories of every method on a tiny network, to notice when a change moves the numbers.

Write them anew, after a change that is meant to move them: python tests/golden/make_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rayctsl.config import build_config
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem
from rayctsl.methods import METHODS

FILE = Path(__file__).with_name("methods.json")
K, M = 3, 2  # at most six meta-updates
CASES: dict[str, dict[str, Any]] = {name: {"name": name} for name in METHODS} | {
    "shifting_late": {"name": "shifting", "shift_delay": 1},
    "shifting_seldom": {"name": "shifting", "aggregate_every": 2},
    "fomaml_pp_annealed": {"name": "fomaml_pp", "every": 1, "anneal_trajectories": 2},
    "leap_energy": {"name": "leap", "norm": False},
    "imaml_plain": {"name": "imaml", "proximal": False, "cg_steps": 2, "cg_damping": 0.1},
}


def wave(*shape: int, phase: float) -> Tensor:
    """Numbers between -1 and 1 that are the same on every machine and with every version of every library."""
    count = torch.Size(shape).numel()
    return torch.sin(1.7 * torch.arange(1, count + 1, dtype=torch.float64) + phase).reshape(shape)


class Regression:
    """Fit a target with two tanh units and a linear head; batches and held-out batches differ in their phase."""

    def __init__(self, number: int):
        self.name, self.number = f"wave-{number}", number

    def build_module(self) -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
        for place, parameter in enumerate(module.parameters()):
            task = self.number if place >= 2 else 0  # the head is the task's own
            parameter.data.copy_(wave(*parameter.shape, phase=place + 10 * task))
        return module

    def head_name(self, module: nn.Module) -> str:
        return "2"

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        inputs = wave(5, 3, phase=self.number + 0.3 * index + 100 * held_out)
        targets = torch.cos(self.number * inputs.sum(1, keepdim=True))
        return (module(inputs) - targets).square().mean()


def trajectory(method: dict[str, Any]) -> list[list[float]]:
    """phi at the start and after every inner step."""
    tasks = {task.name: task for task in (Regression(number) for number in (1, 2, 3))}
    config = build_config(
        {
            "inner_steps": K,
            "trajectories": M,
            "data": {"tasks": list(tasks)},
            "method": {"beta": 0.3, **method},
            "inner": {"optimizer": "momentum", "alpha": 0.1, "weight_decay": 0.01},
        }
    )
    engine = LocalEngine(Problem.of(config, tasks=tasks))
    phis = [engine.meta.phi.tolist()]
    for index in range(config.total_steps):
        engine.run(index, index + 1)
        phis.append(engine.meta.phi.tolist())
    return phis


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(trajectory(method))}" for name, method in CASES.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} trajectories in {FILE}")
