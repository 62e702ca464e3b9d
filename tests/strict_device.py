"""A make-believe accelerator with real numbers, as strict as a real one.

A tensor of the device `sham` wraps a CPU tensor, and every operation is computed on the CPU. An operation that mixes it
with a CPU tensor raises. `counts` has what a real device would make the host wait for: "read" (.item(), bool(),
float()), "blocking copy" (a copy either way that is not asynchronous, or from memory that is not pinned) and
"synchronize"; and "to device" / "to host" for all copies. A recorded graph is played back operation by operation into
the same memory, and refuses while it records whatever a GPU refuses.

The device is registered once and for all in a process, and seen by `torch.accelerator` only while `switch_on`ed.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.strict_device_module import Backend, Recording, counts, refuse_while_recording

NAME = "sham"
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
        refuse_while_recording("a read by the host")
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
        refuse_while_recording("a copy that the host waits for")
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


def _run(operation, args, kwargs):
    result = operation(*args, **kwargs)
    if Recording.active is not None:
        Recording.active.calls.append((operation, args, kwargs, pytree.tree_leaves(result)))
    return result


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
