"""The card of a fine-tuned model: what `model.json` beside its weights says, and its text for people and model hubs."""

from __future__ import annotations

import os
from typing import Annotated, ClassVar

import yaml
from pydantic import Field, FiniteFloat

from rayctsl import hub
from rayctsl.card import Checksum, Licence, OwnModel
from rayctsl.config import FinetuneConfig, ModelConfig, Section
from rayctsl.contract import Contract

WEIGHTS, CARD, README = "model.safetensors", "model.json", "README.md"
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=200)]


def check_model(path: str) -> None:
    """Refuse a model that is not there before torch is imported; what lies elsewhere is looked for later."""
    elsewhere = path.startswith(hub.PREFIX) or "://" in path
    if not elsewhere and not os.path.isfile(path) and not os.path.isfile(os.path.join(path, CARD)):
        raise ValueError(f"{path} holds no fine-tuned model: {CARD} is not there")


class Preprocessing(Section):
    """How an image becomes the model's input: squeezed whole to `height` x `width`, then (pixel - mean) / std."""

    height: int
    width: int
    channels: int
    mean: tuple[FiniteFloat, ...]
    """Per channel, of pixels 0..255."""
    std: tuple[FiniteFloat, ...]
    resize: str = "bilinear, antialiased"


class Origin(Section):
    """What the fine-tuning started from."""

    name: Text
    """An initialization's id, `none`, `imagenet`, `timm/…`."""
    sha256: Checksum | None = None
    """Of the initialization's weights file."""


class SeedSummary(Section):
    """All seeds of the fine-tuning; the saved model is one of them."""

    count: int
    mean: Share
    """Of the accuracies; what to expect, for the saved seed may be the best of them."""
    interval: Share | None
    """Half width of the 95 % interval of the mean; none with one seed."""


class ModelCard(Contract):
    """What is known of a fine-tuned model."""

    CURRENT: ClassVar[int] = 1

    id: Text
    model: OwnModel | ModelConfig
    dataset: Text
    dataset_checksum: str
    """Of the training split's labels and pixels."""
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    started_from: Origin
    recipe: FinetuneConfig
    seed: int
    train_size: int
    test_size: int
    accuracy: Share
    """On the test images."""
    accuracy_interval: tuple[Share, Share]
    """Wilson's 95 % interval over the test images."""
    seeds: SeedSummary
    confusion: tuple[tuple[int, ...], ...]
    """Test images by [true class][predicted class]."""
    sha256: Checksum
    """Of model.safetensors."""
    size: int
    num_parameters: int
    licence: Licence = "other"
    """Of the weights, as hubs name licences; the images' own licence decides."""
    versions: dict[str, str]
    created: str


def readme(card: ModelCard) -> str:
    """The card for people, with the front matter that model hubs read."""
    kind = card.model.class_name if isinstance(card.model, OwnModel) else card.model.name
    low, high = (100 * value for value in card.accuracy_interval)
    seeds = f"{100 * card.seeds.mean:.2f}"
    if card.seeds.interval is not None:
        seeds += f" ± {100 * card.seeds.interval:.2f}"
    classes = ", ".join(card.class_names[:20]) + (", …" if len(card.class_names) > 20 else "")
    return f"""---
{yaml.safe_dump(front_matter(card), sort_keys=False)}---
# {card.id}

A {kind} ({card.num_parameters:,} parameters) that tells {len(card.class_names)} classes apart: {classes}.
Fine-tuned on `{card.dataset}` from `{card.started_from.name}`.

| what | value |
|---|---|
| accuracy on {card.test_size:,} test images | {100 * card.accuracy:.2f} % ({low:.2f} to {high:.2f}) |
| mean of {card.seeds.count} seeds | {seeds} % |
| training images | {card.train_size:,} |
| steps, learning rate | {card.recipe.steps}, {card.recipe.alpha:g} |
| image | {card.preprocessing.height} x {card.preprocessing.width}, {card.preprocessing.channels} channels |
| sha256 of {WEIGHTS} | `{card.sha256}` |

```sh
rayctsl predict PATH IMAGE
```
"""


def front_matter(card: ModelCard) -> dict[str, object]:
    """What the Hub reads of a card; `model-index` carries the result."""
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": card.dataset, "type": card.dataset.partition("@")[0], "split": "test"},
        "metrics": [{"type": "accuracy", "value": round(card.accuracy, 4)}],
    }
    return {
        "license": card.licence,
        "library_name": "rayctsl",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "meta-learning", "safetensors"],
        "datasets": [card.dataset.partition("@")[0]],
        "model-index": [{"name": card.id, "results": [result]}],
    }
