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
    from rayctsl.api import finetune, load_initialization, train

__all__ = ["Config", "FinetuneConfig", "finetune", "load_config", "load_initialization", "train"]

_LAZY = ("finetune", "load_initialization", "train")


def __getattr__(name: str) -> object:
    """The rest on first use: torch and ray take seconds to import."""
    if name not in _LAZY:
        raise AttributeError(f"module 'rayctsl' has no attribute {name!r}")
    value = getattr(import_module("rayctsl.api"), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package: the launchers `train.py` and `finetune.py`, once imported, do not take the functions' names."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _LAZY or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
