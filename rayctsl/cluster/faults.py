"""What went wrong, in one sentence of ours, and whether it counts as a fault of the run."""

from __future__ import annotations

import re
import signal

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)

from rayctsl.cluster.exchange import PeerLost
from rayctsl.learning.group import NonFiniteLoss


class Silent(RuntimeError):
    """A process has not answered for a while, though Ray does not know it to be dead."""


class Stuck(Silent):
    """All processes answer, and none gets on."""


DEATHS = (RayActorError, OutOfMemoryError)  # of a process; the second is what its calls get when Ray ends it for memory
DEVICE_FAULTS = (
    "AcceleratorError",
    "CUDA error",
    "cuDNN error",
    "CUBLAS_STATUS",
    "NCCL error",
    "device-side assert",
    "uncorrectable ECC",
    "DistNetworkError",
)


def describe(error: BaseException, who: str = "a process") -> str:
    """One sentence; of Ray's paragraphs only what a user can use."""
    if isinstance(error, (PeerLost, Stuck)):
        return _first_line(error)
    if isinstance(error, Silent):
        return f"{who} {error}"
    if isinstance(error, ActorUnavailableError):
        return f"{who} cannot be reached"
    if isinstance(error, OutOfMemoryError):
        return f"{who} was ended by Ray because its node ran out of memory"
    if isinstance(error, RayActorError):
        return f"{who} {_death(str(error))}"
    if isinstance(error, GetTimeoutError):
        return f"{who} did not answer in time"
    return f"{who} failed: {_first_line(error)}"


def _death(text: str) -> str:
    if "its node has died" in text or "node died" in text.lower():
        return "was lost with its node"
    if "ray.kill" in text or "RAY_KILL" in text:
        return "was ended"
    if "creation task" in text:
        return f"could not start: {text.strip().splitlines()[-1]}"
    if found := re.search(r"signal (\d+)", text):
        return f"was killed by {signal.Signals(int(found.group(1))).name}"
    return "died: its process is gone"


def is_preemption(error: BaseException) -> bool:
    """Whether the cluster took a node away on purpose, which is no fault of the run."""
    text = str(error)
    drained = "DRAIN" in text or "drained" in text or "expected termination" in text.lower()
    return bool(getattr(error, "preempted", False)) or (isinstance(error, RayActorError) and drained)


def check_importable(error: RayError) -> None:
    """Refuse a node that does not have the code, in place of starting actors there again and again."""
    text = str(error)
    if "failed to import on the worker" in text or ("creation task" in text and "ModuleNotFoundError" in text):
        missing = re.findall(r"No module named '?([\w.]+)'?", text)
        what = f"module {missing[-1]}" if missing else "rayctsl"
        raise ValueError(
            f"a node of the cluster cannot import {what}: install the same packages on all nodes, or let Ray carry "
            "the code there (docs/OPERATIONS.md)"
        )


def is_device_fault(error: BaseException) -> bool:
    """Whether an accelerator or its network failed: the process's context cannot be used any more."""
    return any(word in f"{type(error).__name__}: {error}" for word in DEVICE_FAULTS)


def cause_of(error: RayError) -> BaseException:
    """The exception that the remote code raised, as itself; an error of Ray's own as it is."""
    if not isinstance(error, RayTaskError):
        return error
    cause = error.cause
    for kind in (NonFiniteLoss, PeerLost):
        if isinstance(cause, kind):
            return kind(str(cause).strip().splitlines()[-1].removeprefix(f"{kind.__module__}.{kind.__name__}: "))
    return cause if isinstance(cause, (ValueError, OSError, RayActorError)) or is_device_fault(cause) else error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
