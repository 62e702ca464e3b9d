"""torchvision's ResNet-18/34, with ImageNet weights on request: torchvision's own download, or a local file.

The parameter names are torchvision's, so its checkpoints fit; the 1000-class ImageNet head is dropped.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor, nn

from rayctsl.models.resnet import ACTIVATIONS, three_channels
from rayctsl.torchvision_import import import_torchvision

import_torchvision()
from torchvision.models import ResNet18_Weights, ResNet34_Weights  # noqa: E402
from torchvision.models.resnet import BasicBlock, ResNet  # noqa: E402

_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
_IMAGENET = {"resnet18": ResNet18_Weights.IMAGENET1K_V1, "resnet34": ResNet34_Weights.IMAGENET1K_V1}


class ImageNetResNet(ResNet):
    """torchvision's ResNet that also takes grey images."""

    head_name = "fc"

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(three_channels(images))


def build_imagenet_resnet(name: str, num_classes: int, activation: str, weights: str | None) -> nn.Module:
    """Build `resnet18` or `resnet34`, its backbone from `weights`: None, "imagenet" or a path."""
    model = ImageNetResNet(BasicBlock, list(_BLOCKS[name]), num_classes=num_classes)
    if activation != "relu":
        _replace_relu(model, activation)
    if weights == "imagenet":
        _load_backbone(model, _download(name), f"torchvision's weights of {name}")
    elif weights is not None:
        _load_backbone(model, _read(Path(weights)), f"weights file '{weights}'")
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
        raise RuntimeError(
            f"the ImageNet weights of {name} could not be downloaded ({error}); give the path of a local file instead"
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    """Read a state dict without running any code that the file may carry."""
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"weights must be 'imagenet' or the path of a .safetensors or .pth file, not '{path}'")
    if not path.is_file():
        raise ValueError(f"weights file '{path}' does not exist")
    content = path.read_bytes()
    try:
        if path.suffix == ".safetensors":
            state = load(content)
        else:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a cut or altered pickle stream fails in any way whatever, so no list would be complete
        raise ValueError(f"weights file '{path}' is damaged or not a state dict of tensors") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"weights file '{path}' is not a state dict of tensors")
    return state


def _load_backbone(model: ImageNetResNet, state: dict[str, Tensor], source: str) -> None:
    """Copy every backbone tensor of `state` into `model`; refuse a state dict of another network."""
    head = f"{model.head_name}."
    state = {name: tensor for name, tensor in state.items() if not name.startswith(head)}
    # Checkpoints of old torch versions do not count batches; nothing here reads that counter.
    wanted = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith(head) and not name.endswith("num_batches_tracked")
    }
    for name, tensor in wanted.items():
        if name not in state:
            raise ValueError(f"{source} cannot be used: it has no '{name}'")
        if state[name].shape != tensor.shape:
            shape, expected = list(state[name].shape), list(tensor.shape)
            raise ValueError(f"{source} cannot be used: '{name}' has shape {shape}, expected {expected}")
    unknown = sorted(name for name in state if name not in wanted and not name.endswith("num_batches_tracked"))
    if unknown:
        raise ValueError(f"{source} cannot be used: it has '{unknown[0]}', which this network does not know")
    model.load_state_dict({name: state[name] for name in wanted}, strict=False)
