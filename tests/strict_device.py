"""A make-believe accelerator with real numbers, as strict as a real one.

A tensor of the device `sham` wraps a CPU tensor, and every operation is computed on the CPU. An operation that mixes it
with a CPU tensor raises. `counts` has what a real device would make the host wait for: "read" (.item(), bool(),
float()), "blocking copy" (a copy either way that is not asynchronous, or from memory that is not pinned) and
"synchronize"; and "to device" / "to host" for all copies. A recorded graph is played back operation by operation into
the same memory, and refuses while it records whatever a GPU refuses.

The device is registered once and for all in a process, and seen by `torch.accelerator` only while `switch_on`ed.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "sham"
counts: Counter[str] = Counter()
_kept: list[Any] = []  # what must live as long as the device


class Sham(torch.Tensor):
    """A tensor of the make-believe device; `inner` is where its numbers are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device(NAME, 0),
        )

    def __init__(self, inner):
        self.inner = inner

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.inner = value.inner

    def __repr__(self):
        return f"Sham({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


def compute(operation, args, kwargs):
    """Run one operation on the wrapped tensors; refuse mixtures, count what the host would wait for."""
    name = operation._schema.name
    if name == "aten::_local_scalar_dense":
        _refuse_while_recording("a read by the host")
        _count("read")
        return operation(args[0].inner)
    if name == "aten::_to_copy":
        return _copy_to(operation, args[0], dict(kwargs))
    if name == "aten::copy_":
        into, source = args[:2]
        _count_copy(source, isinstance(into, Sham), args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        _run(torch.ops.aten.copy_.default, (_inner(into), _inner(source)), {})
        return into
    flat, spec = pytree.tree_flatten((args, kwargs))
    shams = [value for value in flat if isinstance(value, Sham)]
    strangers = [value for value in flat if _is_host(value) and value.dim()]
    if shams and strangers:
        raise RuntimeError(f"{name}: expected all tensors on one device, found {NAME} and cpu")
    made_here = _is_sham(kwargs.get("device"))
    args, kwargs = pytree.tree_unflatten([_inner(value) for value in flat], spec)
    result = _run(operation, args, kwargs)
    if not (shams or made_here):
        return result
    known = {id(value.inner): value for value in shams}  # in-place operations return their argument

    def wrap(value):
        if not isinstance(value, torch.Tensor):
            return value
        return known[id(value)] if id(value) in known else Sham(value)

    return pytree.tree_map(wrap, result)


def _copy_to(operation, source, kwargs):
    target = kwargs.pop("device", None)
    to_sham = isinstance(source, Sham) if target is None else _is_sham(target)
    _count_copy(source, to_sham, kwargs.pop("non_blocking", False))
    kwargs.pop("pin_memory", None)
    result = _run(operation, (_inner(source),), kwargs)
    result = result.clone() if result is _inner(source) else result
    return Sham(result) if to_sham else result


def _count_copy(source, to_sham, non_blocking):
    if isinstance(source, Sham) == to_sham:
        return
    counts["to device" if to_sham else "to host"] += 1
    if not non_blocking or (to_sham and source.dim() and not source.is_pinned()):
        _refuse_while_recording("a copy that the host waits for")
        _count("blocking copy")


def _count(wait):
    counts[wait] += 1
    if Backend.warns:
        warnings.warn(f"called a synchronizing operation: {wait}", stacklevel=2)


def _inner(value):
    if isinstance(value, Sham):
        return value.inner
    return torch.device("cpu") if _is_sham(value) else value


def _is_sham(device):
    return isinstance(device, (torch.device, str)) and str(device).startswith(NAME)


def _is_host(value):
    return isinstance(value, torch.Tensor) and not isinstance(value, Sham)


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


def _run(operation, args, kwargs):
    result = operation(*args, **kwargs)
    if Recording.active is not None:
        Recording.active.calls.append((operation, args, kwargs, pytree.tree_leaves(result)))
    return result


def _refuse_while_recording(what):
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
        _refuse_while_recording("a wait")
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


def install():
    """Register the device in this process; a second call does nothing."""
    if _kept:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=Backend())
    make, arange, pin = torch.tensor, torch.arange, torch.Tensor.pin_memory

    def tensor(data, *, device=None, **kwargs):  # the one maker that does not go through the dispatcher
        value = make(data, **kwargs)
        return value.to(device) if device is not None else value

    def pin_memory(self, device=None):
        if not Backend.on:
            return pin(self)
        pinned = self.clone()
        pinned.pinned = True
        return pinned

    def count_up(*limits, device=None, **kwargs):  # this one resizes what it was given, behind the wrapper's back
        return Sham(arange(*limits, **kwargs)) if _is_sham(device) else arange(*limits, device=device, **kwargs)

    torch.tensor, torch.arange = tensor, count_up
    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = lambda self, device=None: getattr(self, "pinned", False)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda operation, *args, **kwargs: compute(operation, args, kwargs), "PrivateUse1")
    _kept.append(library)
    _reduce_inside()


class OnStrictDevice:
    """Builds tasks like another function; a process that receives it has the device from then on."""

    def __init__(self, build_task):
        switch_on()
        self.build_task = build_task

    def __call__(self, name, device):
        return self.build_task(name, device)

    def __reduce__(self):
        return OnStrictDevice, (self.build_task,)


def _reduce_inside():
    """Let gloo, which knows the CPU alone, do NCCL's work on this device."""
    from torch import distributed

    plain = distributed.all_reduce
    distributed.all_reduce = lambda vector, *args, **kwargs: plain(_inner(vector), *args, **kwargs)


def switch_on():
    """From now on the process has an accelerator, and nothing is counted yet."""
    install()
    Backend.on = True
    counts.clear()


def switch_off():
    Backend.on = False
