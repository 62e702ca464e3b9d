"""A task's gradient, recorded once on the accelerator and replayed: one call in place of hundreds of small ones.

What is recorded reads the batch's plan from one place and leaves gradient and loss in others, always the same. The
optimizer's step, the meta-update and the exchange stay outside: methods go on as if nothing had been recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rayctsl.device import is_cpu
from rayctsl.words import one_line

WARM_UPS = 2  # before a recording: libraries choose algorithms and fetch memory at first use, which cannot be recorded

Gradient = Callable[[Tensor], Tensor]  # the plan of a batch -> its loss; the gradient is left where the learner has it


@dataclass
class Recorded:
    """One recorded gradient and where it reads and writes."""

    graph: Any
    plan: Tensor
    loss: Tensor


class Recorder:
    """The recorded gradients of one learner, by kind (training, held out, head alone)."""

    _pools: ClassVar[dict[str, Any]] = {}  # one for all tasks of a process, which never run at the same time

    def __init__(self, device: torch.device, name: str):
        self.device, self.name = device, name
        self.recorded: dict[str, Recorded] = {}
        self.on = can_record(device)

    def run(self, kind: str, plan: Tensor, gradient: Gradient, changed: dict[str, Tensor]) -> Tensor:
        """The loss of a batch, its gradient computed by a replay; recorded first if this kind is new.

        Args:
            changed: what a gradient changes besides itself (batch-norm statistics); put back after a recording.
        """
        if not self.on:
            return gradient(plan)
        if kind not in self.recorded:
            before = {name: value.clone() for name, value in changed.items()}
            try:
                self.recorded[kind] = self._record(plan.clone(), gradient)
            except RuntimeError as error:
                self.on = False
                print(f"graphs are off for task {self.name!r}: {one_line(error, 150)}", flush=True)
            for name, value in changed.items():
                value.copy_(before[name])
            if not self.on:
                return gradient(plan)
        found = self.recorded[kind]
        found.plan.copy_(plan)
        found.graph.replay()
        return found.loss

    def _record(self, plan: Tensor, gradient: Gradient) -> Recorded:
        module = torch.get_device_module(self.device)
        aside = module.Stream()
        aside.wait_stream(module.current_stream())
        with module.stream(aside):
            for _ in range(WARM_UPS):
                gradient(plan)
        module.current_stream().wait_stream(aside)
        graph = module.CUDAGraph()
        pool = self._pools.setdefault(self.device.type, module.graph_pool_handle())
        with module.graph(graph, pool=pool):
            loss = gradient(plan)
        return Recorded(graph, plan, loss)


def can_record(device: torch.device) -> bool:
    """Whether an accelerator has graphs."""
    return not is_cpu(device) and hasattr(torch.get_device_module(device), "CUDAGraph")
