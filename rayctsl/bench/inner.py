"""The inner step alone: what each way to make it faster gives, against plain eager fp32 with torch.optim.SGD.

Every option runs in a process of its own, because memory settings and compiled code belong to a process; the processes
take turns. The batch is fixed in memory, and what is counted is the process's time on its one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from types import MethodType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rayctsl.bench.rounds import Figures, Processes, median_and_spread
from rayctsl.bench.workload import WORKLOADS
from rayctsl.config import InnerConfig, ModelConfig
from rayctsl.learning.processor import compiled, keep_freed_memory, why_not_bf16
from rayctsl.models import build_model
from rayctsl.models.resnet import Block, CifarResNet, three_channels

OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "flat_optimizer": ("flat",),
    "memory_format": ("format",),
    "kept_memory": ("memory",),
    "compile": ("compile",),
    "bf16": ("bf16",),
    "default": ("flat", "format", "memory"),
    "default_compile": ("flat", "format", "memory", "compile"),
    "default_bf16": ("flat", "format", "memory", "bf16"),
    "default_in_thread": ("flat", "format", "memory", "thread"),  # as in an actor of Ray without MALLOC_ARENA_MAX=1
}
DEFAULT_STEPS = {"resnet20": 4, "demo": 100}
Step = Callable[[Callable[[], None]], None]  # an optimizer's step, given what computes the gradient


def measure(arguments: argparse.Namespace) -> Figures:
    """Milliseconds per step of every option, and plain's time over it, median over the rounds."""
    wanted = arguments.options.split(",") if arguments.options else list(OPTIONS)
    unknown = [name for name in wanted if name not in OPTIONS]
    if unknown:
        raise ValueError(f"option {unknown[0]!r} is unknown; known: {', '.join(OPTIONS)}")
    steps, reason = arguments.steps or DEFAULT_STEPS[arguments.model], why_not_bf16("cpu")
    if reason:
        wanted = [name for name in wanted if "bf16" not in OPTIONS[name]]
    seconds: dict[str, list[float]] = {name: [] for name in dict.fromkeys(["plain", *wanted])}
    with ExitStack() as stack:
        teams, warm_up = {}, {}
        for name in seconds:
            teams[name] = stack.enter_context(
                Processes(InnerWorker, [(arguments.model, arguments.size, OPTIONS[name])])
            )
            warm_up[name] = teams[name].run(1)
            teams[name].release()
        for _ in range(arguments.rounds):
            for name, team in teams.items():
                team.run(1)  # fetches the memory again that was given back
                seconds[name].append(team.ask(steps)[0] / steps)
                team.release()
    facts = {"model": arguments.model, "size": arguments.size, "rounds": arguments.rounds}
    return {**facts, **summarise(seconds, warm_up), "bf16_is_off": reason}


def summarise(seconds: Mapping[str, Sequence[float]], warm_up: Mapping[str, float]) -> Figures:
    """Every option's milliseconds and plain's time over its own, as medians over the rounds."""
    result, speedups = Figures(), {}
    for name, values in seconds.items():
        speedups[name] = [plain / own for plain, own in zip(seconds["plain"], values, strict=True)]
        result[name] = {
            "ms": 1000 * float(np.median(values)),
            **median_and_spread("speedup", speedups[name]),
            "first_step_s": warm_up[name],
        }
    return {**result, "speedup": float(np.median(speedups["default"])) if "default" in speedups else None}


class InnerWorker:
    """One model on one batch, with some of the ways switched on."""

    def __init__(self, model: str, size: int, ways: tuple[str, ...]):
        torch.set_num_threads(1)
        if "memory" in ways:
            keep_freed_memory()
        workload = WORKLOADS[model]
        self.module = build_model(ModelConfig(name=workload.model, width=workload.width), 10, seed=0).train()
        if "format" not in ways:
            make_plain(self.module)
        self.step = _flat_optimizer(self.module) if "flat" in ways else _torch_optimizer(self.module)
        self.forward = compiled(self.module) if "compile" in ways else self.module
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16) if "bf16" in ways else nullcontext()
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(workload.batch_size, 3, size, size, generator=generator)
        if "format" in ways:
            self.images = self.images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (workload.batch_size,), generator=generator)
        self.thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        self.in_thread = "thread" in ways

    def __call__(self, steps: int) -> float:
        return self.thread.submit(self._run, steps).result() if self.in_thread else self._run(steps)

    def _run(self, steps: int) -> float:
        started = time.process_time()
        for _ in range(steps):
            self.step(self._backward)
        return time.process_time() - started

    def _backward(self) -> None:
        with self.autocast:
            loss = F.cross_entropy(self.forward(self.images), self.labels)
        loss.backward()
        loss.item()


def _torch_optimizer(module: nn.Module) -> Step:
    config = InnerConfig()
    optimizer = torch.optim.SGD(
        module.parameters(), config.alpha, momentum=config.momentum, weight_decay=config.weight_decay
    )

    def step(backward: Callable[[], None]) -> None:
        optimizer.zero_grad()
        backward()
        optimizer.step()

    return step


def _flat_optimizer(module: nn.Module) -> Step:
    from rayctsl.flat import FlatModule, build_optimizer

    config, flat = InnerConfig(), FlatModule(module)
    optimizer = build_optimizer(config, flat.vector)

    def step(backward: Callable[[], None]) -> None:
        flat.grad.zero_()
        backward()
        flat.vector.add_(optimizer.direction(flat.vector, flat.grad), alpha=-config.alpha)

    return step


def make_plain(module: nn.Module) -> None:
    """The same network as it is usually written: contiguous images, a sliced shortcut, a mean over the pixels."""
    for part in module.modules():
        if isinstance(part, Block):
            part.forward = MethodType(_plain_block, part)  # type: ignore[method-assign]
    module.forward = MethodType(_plain_network, module)


def _plain_block(self: Block, x: Tensor) -> Tensor:
    out = self.activation(self.norm1(self.conv1(x)))
    out = self.norm2(self.conv2(out))
    missing = self.out_channels - x.shape[1]
    if self.stride > 1:
        x = x[:, :, :: self.stride, :: self.stride]
    out += F.pad(x, (0, 0, 0, 0, missing // 2, missing - missing // 2)) if missing else x
    return self.activation(out)


def _plain_network(self: CifarResNet, images: Tensor) -> Tensor:
    x = self.stage3(self.stage2(self.stage1(self.stem(three_channels(images)))))
    return self.head(torch.mean(x, dim=(2, 3)))
