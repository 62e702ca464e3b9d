"""What a process that computes does with its machine: memory that stays, bf16 where it is real, compiled models.

None of it changes what is computed, except by rounding: `InnerLearner` and `TaskGroup` ask for it here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import nn

from rayctsl.malloc import MMAP_MAX, TOP_PAD, TRIM_THRESHOLD, set_malloc

COMPILED_SHAPES = 512  # how many pairs of image size and class count one process may compile

PROBE = """
import torch
layer = torch.nn.Conv2d(16, 16, 3, padding=1)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = layer(torch.ones(8, 16, 32, 32)).relu().mean()
loss.backward()
"""


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next tensor; False where it cannot be told.

    By default every large tensor is fresh memory from the kernel, which clears it page by page, and goes back when
    freed. Step after step asks for the same sizes, and the pages cost up to a quarter of a step.
    """
    largest = 2**31 - 1
    return set_malloc({MMAP_MAX: 0, TRIM_THRESHOLD: largest, TOP_PAD: 2**26})


def set_arithmetic(precision: str = "fp32", deterministic: bool = False) -> None:
    """How this process's accelerator rounds; a CPU always computes fp32 in fp32.

    torch lets convolutions use tf32 (ten bits of mantissa) unless it is told otherwise: here it is a choice.
    """
    # All at once: torch refuses to answer where convolutions and recurrent layers differ.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    # Every task has one shape of batch: trying all algorithms once pays, but which one wins is a matter of chance.
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the GPU is first used
        torch.use_deterministic_algorithms(True)


@cache
def why_not_bf16(device_type: str) -> str | None:
    """Why bf16 is of no use on this machine, in words; None when it is."""
    if device_type != "cpu":
        known = torch.get_device_module(device_type).is_bf16_supported(including_emulation=False)
        return None if known else "this accelerator has no bf16"
    if not advertises_bf16(Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""):
        return "this processor has no bf16 instructions"
    return probe_fails(PROBE)


def advertises_bf16(cpuinfo: str) -> bool:
    """Whether the kernel's description of the processor names bf16 (avx512_bf16, amx_bf16, Arm's bf16)."""
    lines = [line for line in cpuinfo.splitlines() if line.lower().startswith(("flags", "features"))]
    return any("bf16" in flag for line in lines for flag in line.split())


def probe_fails(program: str) -> str | None:
    """Run a program in a process of its own, for it may kill it: a virtual machine may advertise what it forbids."""
    code = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120).returncode
    if code == 0:
        return None
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"this processor advertises bf16, but a process that uses it dies ({end})"


def compiled(module: nn.Module) -> nn.Module:
    """The module through torch.compile: compiled once per shape and process, and kept on disk for the next process."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_SHAPES)
    limit = torch._dynamo.config.accumulated_recompile_limit
    torch._dynamo.config.accumulated_recompile_limit = max(limit, COMPILED_SHAPES)
    return torch.compile(module, dynamic=False)  # type: ignore[return-value]


@contextmanager
def num_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads for a while, as another process does, because another number rounds otherwise.

    None leaves the number as it is.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
