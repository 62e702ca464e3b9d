"""The one place where torchvision is imported.

torchvision's compiled operators need the CUDA libraries; beside a CPU build of torch they do not load, and the
import then dies on two detection operators that this package never calls. Declaring those two is enough.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_MISSING_OPERATOR = "operator torchvision::nms does not exist"

_lock = threading.Lock()
# torch forgets the schemas when the Library object that declared them is collected.
_declared: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """Import torchvision, beside a CPU build of torch too; call it before any `from torchvision import ...`."""
    with _lock:
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            if str(error) != _MISSING_OPERATOR:
                raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in _SCHEMAS:
            library.define(schema)
        _declared.append(library)
        return importlib.import_module("torchvision")
