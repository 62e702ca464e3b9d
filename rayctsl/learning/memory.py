"""A device that is full: said with the task, its batch and the setting to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rayctsl.device import OutOfMemory, describe_device

MORE_ROOM = (
    "lower data.batch_size, or give each learner fewer tasks or a larger share of a GPU "
    "(topology.workers, topology.gpus_per_learner)"
)


@contextmanager
def room_for(
    what: str, batch_size: int, device: torch.device | str, others: int = 0, remedy: str = MORE_ROOM
) -> Iterator[None]:
    """Inside, running out of the device's memory is told in one sentence.

    Args:
        what: is computed. Example: "task 'cub'"
        others: tasks that share the device in this process.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        beside = f", next to {others} other tasks" if others else ""
        where = describe_device(device)
        raise OutOfMemory(
            f"{what} does not fit on {where} with batches of {batch_size} images{beside}: {remedy}"
        ) from error
