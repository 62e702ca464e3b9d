"""Any model of the timm library (`timm/<name>`), its head and its input size taken from timm's own description.

Parameter names are timm's, so weights go both ways. A model of a fixed input size sees its images resized to that size,
others see small ones enlarged; grey images become colour ones. Dropout and stochastic depth are off: a run is a
function of its config and seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from rayctsl.config import ModelConfig
from rayctsl.models.resnet import three_channels
from rayctsl.models.weights import load_weights, read_weights
from rayctsl.torchvision_import import import_torchvision
from rayctsl.words import suggest

PREFIX = "timm/"
PRETRAINED = "pretrained"  # the weights that timm knows for this model, from the Hub
LEAST = (3, 32, 32)  # what nearly all of them halve five times, where timm names no least size


def build_timm(model: ModelConfig) -> nn.Module:
    """Build `timm/<name>` with a head of one output; its backbone random, from timm's Hub or from a local file."""
    if model.width != ModelConfig().width or model.activation != "relu":
        raise ValueError(f"model '{model.name}' has its own widths and activations; leave both out")
    name = find_name(model.name)
    import timm

    try:
        module = timm.create_model(name, pretrained=model.weights == PRETRAINED, num_classes=1)
    except OSError as error:  # the Hub cannot be reached
        reason = " ".join(str(error).split())[:200]
        raise ConnectionError(f"the weights of {name} could not be downloaded ({reason}); give a local file") from error
    module.head_name = _head_of(name, module)
    if model.weights is not None and model.weights != PRETRAINED:
        load_weights(module, read_weights(Path(model.weights)), f"weights file '{model.weights}'")
    _switch_off_chance(module)
    module.register_forward_pre_hook(_Fit(module.pretrained_cfg))
    return module


def find_name(model: str) -> str:
    """timm's own name of `timm/<name>`; ValueError when it has no such model, or is not installed."""
    import_torchvision()
    try:
        import timm
    except ModuleNotFoundError:
        raise ValueError(f"model '{model}' needs the timm library: pip install 'rayctsl[timm]'") from None
    name = model.removeprefix(PREFIX)
    if not timm.is_model(name):
        raise ValueError(f"timm has no model {name!r}{suggest(name, timm.list_models())}")
    return name


class _Fit:
    """Makes a batch fit the model: three channels, the fixed size when it has one, else no less than it can halve."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.fixed = bool(facts.get("fixed_input_size"))
        size: tuple[int, int, int] = facts["input_size"] if self.fixed else facts.get("min_input_size") or LEAST
        _, self.height, self.width = size

    def __call__(self, module: nn.Module, arguments: tuple[Tensor]) -> Tensor:
        images = three_channels(arguments[0])
        height, width = images.shape[2:]
        if (height, width) == (self.height, self.width):
            return images
        if not self.fixed and height >= self.height and width >= self.width:
            return images
        return functional.interpolate(images, (self.height, self.width), mode="bilinear", align_corners=False)


def _head_of(name: str, module: nn.Module) -> str:
    facts: Any = module.pretrained_cfg
    head = facts.get("classifier")
    if not isinstance(head, str):
        raise ValueError(f"model 'timm/{name}' has no single head (timm names {head}); choose another of its family")
    return head


def _switch_off_chance(module: nn.Module) -> None:
    for child in module.modules():
        if isinstance(child, nn.modules.dropout._DropoutNd):
            child.p = 0.0
        elif hasattr(child, "drop_prob"):
            child.drop_prob = 0.0  # type: ignore[assignment]
