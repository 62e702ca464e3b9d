"""torchvision's ResNet-18/34, with ImageNet weights on request: torchvision's own download, or a local file.

The parameter names are torchvision's, so its checkpoints fit; the 1000-class ImageNet head is dropped.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import Tensor, nn

from rayctsl.models.resnet import ACTIVATIONS, three_channels
from rayctsl.models.weights import load_weights, read_weights
from rayctsl.torchvision_import import import_torchvision

import_torchvision()
from torchvision.models import ResNet18_Weights, ResNet34_Weights  # noqa: E402
from torchvision.models.resnet import BasicBlock, ResNet  # noqa: E402

_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
_IMAGENET = {"resnet18": ResNet18_Weights.IMAGENET1K_V1, "resnet34": ResNet34_Weights.IMAGENET1K_V1}


class ImageNetResNet(ResNet):
    """torchvision's ResNet that also takes grey images."""

    head_name = "fc"
    channels_last = True

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(three_channels(images))


def build_imagenet_resnet(name: str, num_classes: int, activation: str, weights: str | None) -> nn.Module:
    """Build `resnet18` or `resnet34`, its backbone from `weights`: None, "imagenet" or a path."""
    model = ImageNetResNet(BasicBlock, list(_BLOCKS[name]), num_classes=num_classes)
    if activation != "relu":
        _replace_relu(model, activation)
    if weights == "imagenet":
        load_weights(model, _download(name), f"torchvision's weights of {name}")
    elif weights is not None:
        load_weights(model, read_weights(Path(weights)), f"weights file '{weights}'")
    return model


def _replace_relu(model: nn.Module, activation: str) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, ACTIVATIONS[activation]())


def _download(name: str) -> dict[str, Tensor]:
    try:
        return _IMAGENET[name].get_state_dict(
            progress=sys.stderr.isatty(), check_hash=True, weights_only=True, map_location="cpu"
        )
    except OSError as error:
        raise ConnectionError(
            f"the ImageNet weights of {name} could not be downloaded ({error}); give the path of a local file instead"
        ) from error
