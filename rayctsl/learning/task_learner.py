"""One task's learner: its parameters, optimizer and place in the data.

Methods drive it through the `Learner` protocol of `methods/base.py`; it knows nothing of other tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from rayctsl.config import Config
from rayctsl.device import is_cpu
from rayctsl.flat import FlatModule, build_optimizer, copy_state
from rayctsl.learning.graphs import Recorder
from rayctsl.learning.processor import compiled, why_not_bf16
from rayctsl.learning.schedule import alpha_at
from rayctsl.learning.tasks import Planned, Task

HELD_OUT = "held out"
COUNTED = ("inner", "held_out", "hessian")  # gradients, counted apart


class InnerLearner:
    """theta (backbone) and head of one task, and the inner optimizer that moves them."""

    def __init__(self, task: Task, config: Config):
        self.task, self.config = task, config
        self.module = task.build_module().train()
        layout, own_norm = getattr(task, "channels_last", False), config.own_norm
        self.flat = FlatModule(self.module, task.head_name(self.module), channels_last=layout, own_norm=own_norm)
        self.theta, self.theta_grad, self.head = self.flat.backbone, self.flat.backbone_grad, self.flat.head
        self.forward = compiled(self.module) if config.compile else self.module
        self._bf16 = config.precision == "bf16" and why_not_bf16(self.theta.device.type) is None
        records = config.graphs == "auto" and not config.compile and not is_cpu(self.theta.device)
        self.recorder = Recorder(self.theta.device, task.name) if records else None
        self.optimizer = build_optimizer(config.inner, self.flat.vector)
        self.alpha = config.inner.alpha
        self.memory: dict[str, Tensor] = {}
        self.counts = torch.zeros(len(COUNTED), dtype=torch.int64)
        self._first_head = self.flat.head.clone()
        self._first_buffers = {name: value.clone() for name, value in self.flat.buffers().items()}

    def begin_trajectory(self, phi: Tensor) -> None:
        """Back to phi; optimizer, head and batch-norm statistics by policy."""
        self.theta.copy_(phi)
        reset = self.config.reset
        if reset.optimizer == "reset":
            self.optimizer.reset()
        if reset.head == "reset":
            self.flat.head.copy_(self._first_head)
        if reset.norm_stats == "reset":
            copy_state(self.flat.buffers(), self._first_buffers)

    def compute_gradient(self, index: int, *, head_only: bool = False) -> Tensor:
        """Leave the training gradient of batch `index` in `flat.grad`; returns the loss, unread."""
        self.alpha = alpha_at(self.config, index)
        self.flat.freeze_backbone(head_only)
        self.counts[0] += 1
        return self._gradient(index, kind="head" if head_only else "training")

    def apply_gradient(self, *, head_only: bool = False) -> None:
        """One step of the inner optimizer along `flat.grad`."""
        part = slice(self.flat.size if head_only else 0, None)
        theta, grad = self.flat.vector[part], self.flat.grad[part]
        theta.add_(self.optimizer.direction(theta, grad, part), alpha=-self.alpha)

    def held_out_gradient(self, index: int) -> Tensor:
        """The backbone's gradient on a held-out batch, here and now."""
        self.flat.freeze_backbone(False)
        self.counts[1] += 1
        self._gradient(index, kind=HELD_OUT)
        return self.theta_grad.clone()

    def training_loss(self, index: int) -> Tensor:
        """The loss of batch `index`, without a gradient."""
        with torch.no_grad():
            return self._loss(index)

    def hessian(self, index: int) -> Callable[[Tensor], Tensor]:
        """The map v -> H v with the backbone's Hessian of the training loss of batch `index`."""
        self.flat.freeze_backbone(False)
        parameters = self.flat.backbone_parameters
        with self._precision():
            loss = self.task.loss(self.module, index)  # never compiled: that has no second derivatives
        # A parameter that enters linearly, or not at all, has zeros in its rows: hence materialize_grads.
        gradient = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)

        def multiply(vector: Tensor) -> Tensor:
            self.counts[2] += 1
            named = self.flat.name_backbone(vector)
            along = torch.stack([(g * v).sum() for g, v in zip(gradient, named.values(), strict=True)]).sum()
            rows = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
            return self.flat.flatten_backbone(dict(zip(named, rows, strict=True)))

        return multiply

    def _gradient(self, index: int, kind: str) -> Tensor:
        """Leave a gradient in `flat.grad` and return its loss: replayed where it can be recorded, else step by step."""
        held_out, task = kind == HELD_OUT, self.task
        plan = None
        if self.recorder is not None and isinstance(task, Planned):
            plan = task.plan(index, held_out=held_out)
        if self.recorder is None or plan is None or not isinstance(task, Planned):
            return self._backward(lambda: self._loss(index, held_out=held_out))

        def gradient(plan: Tensor) -> Tensor:
            with self._precision():
                return self._backward(lambda: task.planned_loss(self.forward, plan, held_out=held_out))

        return self.recorder.run(kind, plan, gradient, self.flat.buffers())

    def _backward(self, compute: Callable[[], Tensor]) -> Tensor:
        self.flat.grad.zero_()
        loss = compute()
        loss.backward()
        return loss.detach()

    def _loss(self, index: int, *, held_out: bool = False) -> Tensor:
        with self._precision():
            return self.task.loss(self.forward, index, held_out=held_out)

    def _precision(self) -> AbstractContextManager[None]:
        return torch.autocast(self.theta.device.type, dtype=torch.bfloat16) if self._bf16 else nullcontext()

    def adaptation_state(self) -> dict[str, Tensor]:
        """Everything besides theta that inner steps change: head, optimizer, batch-norm statistics."""
        state = {"head": self.flat.head}
        state.update({f"optimizer.{name}": value for name, value in self.optimizer.state.items()})
        state.update({f"buffer.{name}": value for name, value in self.flat.buffers().items()})
        return state

    def load_adaptation_state(self, state: dict[str, Tensor]) -> None:
        copy_state(self.adaptation_state(), state)

    def state(self) -> dict[str, Tensor]:
        """Live references to the learner's complete state, for snapshots."""
        memory = {f"memory.{name}": value for name, value in self.memory.items()}
        return {"theta": self.theta, "counts": self.counts, **self.adaptation_state(), **memory}

    def load_state(self, state: dict[str, Tensor]) -> None:
        prefix, device = "memory.", self.theta.device
        saved = {name: value for name, value in state.items() if name.startswith(prefix)}
        self.memory = {name.removeprefix(prefix): value.to(device, copy=True) for name, value in saved.items()}
        copy_state(self.state(), state)
