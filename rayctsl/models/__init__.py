"""Models: a backbone, whose parameters phi shares, plus a head, which belongs to one task.

`build_model` makes one by name. `find_head` and `with_head` let any module with a named head take part. A built-in
model takes float images [B, 1 or 3, H, W] and says in `head_name` which of its children is the head.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import nn

from rayctsl.config import ModelConfig
from rayctsl.models.resnet import CifarResNet
from rayctsl.models.weights import load_weights, read_weights
from rayctsl.words import suggest

__all__ = ["MODELS", "build_model", "find_head", "seeded", "with_head"]

_HEAD_NAMES = ("head", "fc", "classifier")


def _build_cifar(model: ModelConfig) -> nn.Module:
    if model.weights == "imagenet":
        raise ValueError(f"model '{model.name}' has no ImageNet weights; 'resnet18' and 'resnet34' have")
    blocks_per_stage = (int(model.name.removeprefix("resnet")) - 2) // 6
    module = CifarResNet(blocks_per_stage, model.width, 1, model.activation)
    if model.weights is not None:
        load_weights(module, read_weights(Path(model.weights)), f"weights file '{model.weights}'")
    return module


def _build_imagenet(model: ModelConfig) -> nn.Module:
    if model.width not in (16, 64):  # 64 is the truth, 16 the config's default
        raise ValueError(f"model '{model.name}' has the fixed width 64, it cannot be built with width {model.width}")
    # torchvision takes a second to import, and most runs do without it.
    from rayctsl.models.pretrained import build_imagenet_resnet

    return build_imagenet_resnet(model.name, 1, model.activation, model.weights)


def _build_timm(model: ModelConfig) -> nn.Module:
    from rayctsl.models.timm_models import build_timm  # seconds to import, and an extra

    return build_timm(model)


MODELS: dict[str, Callable[[ModelConfig], nn.Module]] = {  # each makes a head of one output, which is replaced
    **dict.fromkeys(("resnet8", "resnet20", "resnet32", "resnet44", "resnet56"), _build_cifar),
    **dict.fromkeys(("resnet18", "resnet34"), _build_imagenet),
}


def build_model(model: ModelConfig, num_classes: int, seed: int | None = None) -> nn.Module:
    """Build a model with a fresh head of `num_classes` outputs.

    Args:
        seed: makes the backbone a pure function of (seed, name, width) and the head one of (seed, num_classes), and
            leaves torch's random state alone; the model is then made on the CPU. Without it, that state decides.
    """
    if model.own is not None:
        raise ValueError(f"{model.own} is your own model: give its class, as in rayctsl.train(..., model=MyNetwork)")
    build = _build_timm if model.name.startswith("timm/") else MODELS.get(model.name)
    if build is None:
        raise ValueError(f"model {model.name!r} is unknown{suggest(model.name, [*MODELS, 'timm/<name>'])}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, not {num_classes}")
    # The head is made after the backbone and from its own seed, so that its size cannot touch the backbone's numbers.
    with seeded(seed, "backbone", model.name, model.width):
        module = build(model)
    with seeded(seed, "head", num_classes):
        return with_head(module, num_classes, find_head(module))


def find_head(module: nn.Module, head_name: str | None = None) -> str:
    """The name of the module's head: the one given, else `module.head_name`, else the usual one that it has."""
    name = head_name or getattr(module, "head_name", None)
    if name is not None:
        _check_known("head", name, [path for path, _ in module.named_modules() if path])
        return name
    present = [name for name, _ in module.named_children() if name in _HEAD_NAMES]
    if len(present) != 1:
        found = " and ".join(f"'{name}'" for name in present) or "none of 'head', 'fc', 'classifier'"
        raise ValueError(f"{type(module).__name__} has {found}; name its last layer, as in train(..., head='out')")
    return present[0]


def with_head(module: nn.Module, num_classes: int, head_name: str | None = None) -> nn.Module:
    """Give `module`, in place, a fresh last linear layer with `num_classes` outputs, and return it."""
    name = path = find_head(module, head_name)
    old = module.get_submodule(path)
    if isinstance(old, nn.Sequential) and len(old):
        last, old = list(old.named_children())[-1]
        path = f"{path}.{last}"
    if not isinstance(old, nn.Linear):
        raise ValueError(f"head '{name}' must be an nn.Linear or an nn.Sequential that ends with one")
    new = nn.Linear(old.in_features, num_classes, old.bias is not None, old.weight.device, old.weight.dtype)
    parent, _, leaf = path.rpartition(".")
    setattr(module.get_submodule(parent), leaf, new)
    return module


def _check_known(kind: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name not in known:
        raise ValueError(f"{kind} {name!r} is unknown{suggest(name, known)}")


@contextlib.contextmanager
def seeded(seed: int | None, *purpose: object) -> Iterator[None]:
    """Inside, torch's CPU generator is seeded by (seed, purpose); outside, nothing has happened."""
    if seed is None:
        yield
        return
    digest = hashlib.sha256(repr((int(seed), *purpose)).encode()).digest()
    # The CPU generator by itself: torch.manual_seed would also seed the GPUs, whose state the fork does not restore.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        yield
