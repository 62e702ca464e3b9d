"""The size of a model."""

from __future__ import annotations

from torch import nn


def num_parameters(module: nn.Module) -> int:
    """How many numbers the module learns."""
    return sum(parameter.numel() for parameter in module.parameters())
