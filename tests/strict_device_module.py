"""What `torch.cuda` is of a GPU, for the make-believe device of `strict_device.py`: streams, events, graphs, memory."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

counts: Counter[str] = Counter()


class Recording:
    """The make-believe `torch.cuda.CUDAGraph`."""

    active: Recording | None = None

    def __init__(self):
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.replays = 0

    def replay(self):
        self.replays += 1
        for operation, args, kwargs, results in self.calls:
            memory = {
                _address(value) for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)
            }
            again = pytree.tree_leaves(operation(*args, **kwargs))
            for old, new in zip(results, again, strict=True):
                if isinstance(old, torch.Tensor) and _address(old) not in memory:  # not a view, not in place
                    old.copy_(new)


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


def refuse_while_recording(what):
    if Recording.active is not None:
        raise RuntimeError(f"operation not permitted when stream is capturing: {what}")


class Event:
    """Everything is done at once here, so an event is a moment of the host's clock."""

    def __init__(self, enable_timing=False):
        self.moment = None

    def record(self, stream=None):
        self.moment = time.perf_counter()

    def elapsed_time(self, end):
        return 1000 * (end.moment - self.moment)

    def query(self):
        return True

    def synchronize(self):
        counts["synchronize"] += 1


class Stream:
    def wait_stream(self, other):
        pass

    def synchronize(self):
        counts["synchronize"] += 1


class Backend:
    """What torch asks of a device's module (`torch.cuda` of a GPU)."""

    Event, Stream, CUDAGraph = Event, Stream, Recording
    on = False
    memory = (2**30, 2**30)  # free, whole
    bf16 = True
    warns = False

    def is_initialized(self):
        return True

    def is_available(self):
        return Backend.on

    def current_device(self):
        return 0

    def _is_in_bad_fork(self):
        return False

    def manual_seed_all(self, seed):
        pass

    def device_count(self):
        return int(Backend.on)

    def get_device_name(self):
        return "strict device"

    def mem_get_info(self):
        return Backend.memory

    def synchronize(self):
        refuse_while_recording("a wait")
        counts["synchronize"] += 1

    def set_sync_debug_mode(self, mode):
        Backend.warns = mode == "warn"

    def is_bf16_supported(self, including_emulation=True):
        return Backend.bf16

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def graph_pool_handle(self):
        return (0, 1)

    def current_stream(self):
        return Stream()

    @contextmanager
    def stream(self, stream):
        yield

    @contextmanager
    def graph(self, recording, stream=None, pool=None):
        Recording.active = recording
        try:
            yield
        finally:
            Recording.active = None
