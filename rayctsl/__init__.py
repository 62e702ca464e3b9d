"""Parallel meta-learning on Ray with continual trajectory shifting.

>>> import rayctsl
>>> config = rayctsl.load_config("configs/demo.yaml", {"method": "reptile"})
>>> initialization = rayctsl.train(config)
>>> module = rayctsl.load_initialization(initialization.id, num_classes=10)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayctsl.config import Config, load_config

if TYPE_CHECKING:
    from rayctsl.api import finetune, load_initialization, train

__all__ = ["Config", "finetune", "load_config", "load_initialization", "train"]


def __getattr__(name: str) -> Any:
    """The rest on first use: torch and ray take seconds to import."""
    from importlib import import_module

    homes = {"train": "rayctsl.api", "finetune": "rayctsl.api", "load_initialization": "rayctsl.api"}
    if name in homes:
        # Commands share two of these names; the function must win over the submodule of that name.
        value = getattr(import_module(homes[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rayctsl' has no attribute {name!r}")
