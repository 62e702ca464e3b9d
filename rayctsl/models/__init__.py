"""Models: a backbone, whose parameters phi shares, plus a head, which belongs to one task.

`build_model` makes one by name. `find_head` and `with_head` let any module with a named head take part. A built-in
model takes float images [B, 1 or 3, H, W] and says in `head_name` which of its children is the head.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import nn

from rayctsl.models.resnet import ACTIVATIONS, CifarResNet

__all__ = ["MODELS", "build_model", "find_head", "num_parameters", "with_head"]

_HEAD_NAMES = ("head", "fc", "classifier")


def _build_cifar(name: str, num_classes: int, width: int, activation: str, weights: str | None) -> nn.Module:
    if weights is not None:
        raise ValueError(f"model '{name}' has no pretrained weights; 'resnet18' and 'resnet34' have")
    blocks_per_stage = (int(name.removeprefix("resnet")) - 2) // 6
    return CifarResNet(blocks_per_stage, width, num_classes, activation)


def _build_imagenet(name: str, num_classes: int, width: int, activation: str, weights: str | None) -> nn.Module:
    if width not in (16, 64):  # 64 is the truth, 16 the default of `build_model`
        raise ValueError(f"model '{name}' has the fixed width 64, it cannot be built with width {width}")
    # torchvision takes a second to import, and most runs do without it.
    from rayctsl.models.pretrained import build_imagenet_resnet

    return build_imagenet_resnet(name, num_classes, activation, weights)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet8": partial(_build_cifar, "resnet8"),
    "resnet20": partial(_build_cifar, "resnet20"),
    "resnet32": partial(_build_cifar, "resnet32"),
    "resnet44": partial(_build_cifar, "resnet44"),
    "resnet56": partial(_build_cifar, "resnet56"),
    "resnet18": partial(_build_imagenet, "resnet18"),
    "resnet34": partial(_build_imagenet, "resnet34"),
}


def build_model(
    name: str,
    num_classes: int,
    *,
    width: int = 16,
    activation: str = "relu",
    weights: str | None = None,
    seed: int | None = None,
) -> nn.Module:
    """Build the model `name` with a fresh head of `num_classes` outputs.

    Args:
        width: channels of the first stage; only of the CIFAR-style models.
        activation: "relu" or "softplus".
        weights: of resnet18 and resnet34: None, "imagenet" (downloaded by torchvision) or a local state-dict file.
        seed: makes the backbone a pure function of (seed, name, width) and the head one of (seed, num_classes), and
            leaves torch's random state alone; the model is then made on the CPU. Without it, that state decides.
    """
    _check_known("model", name, MODELS)
    _check_known("activation", activation, ACTIVATIONS)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, not {num_classes}")
    if width < 1:
        raise ValueError(f"width must be at least 1, not {width}")
    # The head is made after the backbone and from its own seed, so that its size cannot touch the backbone's numbers.
    with _seeded(seed, "backbone", name, width):
        model = MODELS[name](num_classes=1, width=width, activation=activation, weights=weights)
    with _seeded(seed, "head", num_classes):
        return with_head(model, num_classes, find_head(model))


def find_head(module: nn.Module, head_name: str | None = None) -> str:
    """The name of the module's head: the one given, else `module.head_name`, else the usual one that it has."""
    name = head_name or getattr(module, "head_name", None)
    if name is not None:
        _check_known("head", name, [path for path, _ in module.named_modules() if path])
        return name
    present = [name for name, _ in module.named_children() if name in _HEAD_NAMES]
    if len(present) != 1:
        found = " and ".join(f"'{name}'" for name in present) or "none of 'head', 'fc', 'classifier'"
        raise ValueError(f"{type(module).__name__} has {found}; name its head with head_name")
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


def num_parameters(module: nn.Module) -> int:
    """How many numbers the module learns."""
    return sum(parameter.numel() for parameter in module.parameters())


def _check_known(kind: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
    raise ValueError(f"{kind} '{name}' is unknown; {advice}")


@contextlib.contextmanager
def _seeded(seed: int | None, *purpose: object) -> Iterator[None]:
    """Inside, torch's CPU generator is seeded by (seed, purpose); outside, nothing has happened."""
    if seed is None:
        yield
        return
    digest = hashlib.sha256(repr((int(seed), *purpose)).encode()).digest()
    # The CPU generator by itself: torch.manual_seed would also seed the GPUs, whose state the fork does not restore.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        yield
