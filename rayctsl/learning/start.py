"""What fine-tuning starts from: an initialization, random weights, or weights that exist elsewhere.

`find_start` turns what people write (`none`, `imagenet`, `timm/…`, `zoo/…`, `hf-hub:…`, a folder, an id) into a
`Start`, which can be sent to another process. `timm/NAME@FILE` and `imagenet@FILE` take the weights from a local file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from rayctsl.card import OwnModel
from rayctsl.config import FinetuneConfig, ModelConfig
from rayctsl.models import build_model
from rayctsl.models.own import UserModel
from rayctsl.registry import IMAGENET, NONE, TIMM, Initialization, open_initialization

PRETRAINED = "pretrained"


@dataclass(frozen=True)
class Start:
    """Example: Start("none", ModelConfig(name="resnet8")), a ResNet-8 with random weights."""

    name: str
    model: ModelConfig
    phi: Mapping[str, Tensor] | None = None
    sha256: str | None = None  # of phi's file, or of the weights file
    own: UserModel | None = None  # the user's own model, in place of `model`
    recipe: FinetuneConfig | None = None  # what the card names for fine-tuning

    def build(self, num_classes: int, seed: int) -> nn.Module:
        """A module with a fresh head; phi is not in it yet."""
        return self.own(num_classes, seed) if self.own is not None else build_model(self.model, num_classes, seed)


def find_start(text: str, random_model: ModelConfig | None = None, storage: str | None = None) -> Start:
    """The start that a name stands for.

    Args:
        random_model: what `none` and `imagenet` build; the config's model.
        storage: where ids are looked up.
    """
    model = random_model or ModelConfig()
    if text == NONE:
        return Start(NONE, model)
    name, _, file = text.partition("@")
    if name == IMAGENET:
        known = model.name if model.name in ("resnet18", "resnet34") else "resnet18"
        return _elsewhere(name, known, file, IMAGENET)
    if name.startswith(TIMM):
        from rayctsl.models.timm_models import find_name  # seconds to import, and an extra

        find_name(name)
        return _elsewhere(name, name, file, PRETRAINED)
    return start_from(open_initialization(text, storage))


def _elsewhere(name: str, model: str, file: str, download: str) -> Start:
    """Weights of another program: downloaded, or from a local file, whose sha256 says which."""
    if not file:
        return Start(name, ModelConfig(name=model, weights=download))
    if not Path(file).is_file():
        raise ValueError(f"weights file '{file}' does not exist")
    checksum = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return Start(name, ModelConfig(name=model, weights=file), sha256=checksum)


def start_from(initialization: Initialization, own: UserModel | None = None) -> Start:
    """The start of an opened initialization; `own` builds the user's own model."""
    card = initialization.card
    if own is None:
        return Start(initialization.id, card.built_in, initialization.phi(), card.sha256, recipe=card.finetune)
    if isinstance(card.model, OwnModel):
        own.channels = card.model.channels
    return Start(initialization.id, ModelConfig(), initialization.phi(), card.sha256, own, card.finetune)
