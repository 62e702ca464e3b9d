"""Where a process computes, an accelerator or the CPU, and how numbers get there without making the host wait.

`choose_device` decides everywhere. Everything goes through torch's names for any accelerator (`torch.accelerator`,
`torch.get_device_module`), so that a device of the tests takes the same paths as a GPU.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

UNFIT = ("mps",)  # no float64, in which sums are taken


class OutOfMemory(ValueError):
    """A task does not fit on its device."""

    exit_code = 1


def choose_device(granted: bool = True) -> str:
    """This machine's accelerator (`cuda`, …) if it has one, else `cpu`.

    Args:
        granted: False where others may have reserved the accelerator and this process has not.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True) if granted else None
    return "cpu" if accelerator is None or accelerator.type in UNFIT else accelerator.type


def is_cpu(device: torch.device | str) -> bool:
    return torch.device(device).type == "cpu"


def send(values: Tensor | np.ndarray, device: torch.device | str) -> Tensor:
    """Values of the host on a device; the host does not wait for the copy."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    # Only from pinned memory does a copy run by itself; torch keeps that memory until the copy is done.
    return tensor if is_cpu(device) else tensor.pin_memory().to(device, non_blocking=True)


def synchronize(device: torch.device | str) -> None:
    """Wait until everything asked of the device is done."""
    if not is_cpu(device):
        torch.get_device_module(device).synchronize()


def free_bytes(device: torch.device | str) -> int:
    """Memory of an accelerator that nobody uses."""
    return int(torch.get_device_module(device).mem_get_info()[0])


def describe_device(device: torch.device | str) -> str:
    """What computes, for people: `NVIDIA A100 (cuda)`, or `1 thread of AMD EPYC 7763`."""
    if not is_cpu(device):
        return f"{torch.get_device_module(device).get_device_name()} ({torch.device(device).type})"
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' * (threads > 1)} of {_processor_name()}"


@cache
def _processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class Stopwatch:
    """Computing time: the host's clock on a CPU, events of the device elsewhere, which nobody waits for meanwhile."""

    def __init__(self, device: torch.device | str):
        self._module = None if is_cpu(device) else torch.get_device_module(device)
        self._seconds = 0.0
        self._laps: list[tuple[Any, Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._module is None:
            started = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - started
        else:
            first, last = (self._module.Event(enable_timing=True) for _ in range(2))
            first.record()
            yield
            last.record()
            self._laps.append((first, last))

    def take(self) -> float:
        """Seconds since the last call; the device must have come past them."""
        seconds = self._seconds + sum(first.elapsed_time(last) for first, last in self._laps) / 1000
        self._seconds, self._laps = 0.0, []
        return seconds
