"""Parallel meta-learning on Ray with continual trajectory shifting.

>>> import rayctsl
>>> changes = {"method": "reptile", "tasks": ["latin", "shapes"], "inner_steps": 5, "trajectories": 1}
>>> config = rayctsl.load_config("configs/demo.yaml", changes)
>>> initialization = rayctsl.train(config, engine="local")  # without `engine`: on Ray
>>> module = rayctsl.load_initialization(initialization.id, num_classes=10)
>>> type(module).__name__
'CifarResNet'
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from rayctsl.config import Config, FinetuneConfig, load_config

if TYPE_CHECKING:
    from rayctsl.api import finetune, load_initialization, predict, train
    from rayctsl.jobs.saved_model import open_model
    from rayctsl.registry import Initialization, open_initialization

__all__ = [
    "Config",
    "FinetuneConfig",
    "Initialization",
    "finetune",
    "load_config",
    "load_initialization",
    "open_initialization",
    "open_model",
    "predict",
    "train",
]

_LAZY = {
    **dict.fromkeys(("finetune", "load_initialization", "predict", "train"), "rayctsl.api"),
    "open_model": "rayctsl.jobs.saved_model",
    **dict.fromkeys(("Initialization", "open_initialization"), "rayctsl.registry"),
}


def __getattr__(name: str) -> object:
    """The rest on first use: torch and ray take seconds to import."""
    if name not in _LAZY:
        raise AttributeError(f"module 'rayctsl' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package: launchers such as `train.py`, once imported, do not take the names of functions."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _LAZY or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
