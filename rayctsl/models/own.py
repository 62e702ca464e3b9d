"""A model that the user's program brings: seeded, with its head named, and given the channels it was promised."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rayctsl.models import find_head, seeded

Build = Callable[[int], nn.Module]  # number of classes -> module
FEW_CLASSES = 2


class UserModel:
    """Builds the user's module for a number of classes. Example: UserModel(MyNetwork, head="classifier.1")"""

    def __init__(self, build: Build, head: str | None = None, channels: int = 3):
        """
        Args:
            head: the child that is the last layer; `head`, `fc` or `classifier` is found by itself.
            channels: of the images that the module is given, whatever the dataset has.
        """
        self.build, self.head, self.channels = build, head, channels

    def __call__(self, num_classes: int, seed: int) -> nn.Module:
        """The module; its backbone is a function of the seed alone."""
        module = self._build(num_classes, seed)
        if num_classes != FEW_CLASSES:
            # A head that is made before the backbone draws as many numbers as it has classes.
            _copy_backbone(self._build(FEW_CLASSES, seed), module, find_head(module))
        module.register_forward_pre_hook(MatchChannels(self.channels))
        return module

    def _build(self, num_classes: int, seed: int) -> nn.Module:
        with seeded(seed, "own model"):
            module = self.build(num_classes)
        name = find_head(module, self.head)
        if self.head is not None:
            module.head_name = name  # type: ignore[assignment]  # where find_head looks
        return module

    @property
    def class_name(self) -> str:
        """Example: "my_package.MyNetwork"; building one finds out that it has a head, too."""
        kind = type(self._build(FEW_CLASSES, 0))
        return f"{kind.__module__}.{kind.__qualname__}"


class MatchChannels:
    """A forward hook: grey images are repeated, colours averaged, as far as the module's channels ask for it."""

    def __init__(self, channels: int):
        self.channels = channels

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        images, *rest = inputs
        if images.shape[1] != self.channels:
            images = images.mean(1, keepdim=True).expand(-1, self.channels, -1, -1).contiguous()  # as rows, too
        return (images, *rest)


@torch.no_grad()
def _copy_backbone(source: nn.Module, target: nn.Module, head: str) -> None:
    known = dict(source.named_parameters())
    for name, value in target.named_parameters():
        if name == head or name.startswith(f"{head}."):
            continue
        if name not in known or known[name].shape != value.shape:
            raise ValueError(f"parameter {name!r} of your model depends on the number of classes: only its head may")
        value.copy_(known[name])
