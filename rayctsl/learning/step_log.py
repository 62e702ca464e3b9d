"""What the steps of a chunk leave behind, on the device until the chunk ends: then it is read once and judged.

A task whose loss or contribution is not finite is masked by its group at once, on the device; here, at the end, it is
named (`on_non_finite: stop`) or left out from then on (`drop`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rayctsl.learning.group import NonFiniteLoss, TaskGroup
from rayctsl.methods import Step


class StepLog:
    """One row a step: losses and masks of this process's tasks, delta's length, disagreement, number of tasks.

    `losses` [steps, tasks], `delta_norms`, `disagreements` and `inner_steps` [steps] are there after `close`.
    """

    def __init__(self, steps: Sequence[Step], group: TaskGroup, phi: Tensor):
        self.steps, self.group = steps, group
        width = len(group.names)
        # All in one tensor, so that one copy brings it to the host.
        self._board = phi.new_full((len(steps), 2 * width + 3), math.nan)
        self._losses, self._alive, self._ends = self._board.split([width, width, 3], dim=1)
        self._counts: list[tuple[np.ndarray, np.ndarray]] = []  # gradients per task: after the step, and after its pull

    def note_losses(self, row: int, losses: Tensor) -> None:
        self._losses[row] = losses
        self._counts.append((self.group.counts_by_task(),) * 2)

    def note_alive(self, row: int) -> None:
        """Call when the contributions of the step, if any, have been taken."""
        self._alive[row] = self.group.alive
        self._counts[row] = (self._counts[row][0], self.group.counts_by_task())

    def note_update(self, row: int, total: Tensor, delta: Tensor, disagreement: Tensor) -> None:
        self._ends[row, 0] = torch.linalg.vector_norm(delta)
        self._ends[row, 1] = disagreement
        self._ends[row, 2] = total[-1]

    def close(self) -> None:
        """Read everything; drop or name the tasks that diverged."""
        board, width = self._board.cpu().double().numpy(), len(self.group.names)
        self.losses, self.delta_norms, self.disagreements = board[:, :width].copy(), board[:, -3], board[:, -2]
        if not self.steps:  # nothing to do: the method does not train
            self.inner_steps = np.zeros(0, int)
            return
        counts = np.stack([after for _, after in self._counts])
        fallen = {}
        for place, name in enumerate(self.group.names):
            rows = np.flatnonzero(board[:, width + place] == 0)
            if name not in self.group.dropped and len(rows):
                row = fallen[name] = int(rows[0])
                counts[row:, place] = self._counts[row][int(math.isfinite(self.losses[row, place]))][place]
                self.losses[row + 1 :, place] = np.nan
        self.inner_steps = counts[:, :, 0].sum(1) if counts.size else np.zeros(len(self.steps), int)
        if fallen:
            self._judge(fallen, counts[-1])
        if self.group.config.on_non_finite == "drop" and (board[:, -1] == 0).any():
            raise NonFiniteLoss("every task has diverged and was dropped; lower beta or alpha")

    def _judge(self, fallen: dict[str, int], counts: np.ndarray) -> None:
        if self.group.config.on_non_finite == "drop":
            self.group.drop(fallen, counts)
            return
        name = min(fallen, key=lambda name: fallen[name])
        row = fallen[name]
        loss = self.losses[row, self.group.names.index(name)]
        too_large = f"pull that is not finite or beyond {2**self.group.grid.limit_bits}"  # the limit of exact sums
        raise self.group.diverged(name, self.steps[row], too_large if math.isfinite(loss) else f"{loss:g}")
