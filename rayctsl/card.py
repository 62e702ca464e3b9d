"""The card of an initialization: what `card.json` says, and its text for people."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, ClassVar, Literal

import yaml
from pydantic import AfterValidator, Field, FiniteFloat

from rayctsl.config import AnyMethod, FinetuneConfig, ModelConfig, Section
from rayctsl.contract import Contract

PHI, CARD, README = "phi.safetensors", "card.json", "README.md"
ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,95}")

Curve = tuple[tuple[int | FiniteFloat, int | FiniteFloat], ...]
Metric = int | FiniteFloat | Annotated[str, Field(max_length=1000)] | Curve | None
LICENCE_PATTERN = r"^[a-z0-9][a-z0-9.-]{1,59}$"
Licence = Annotated[str, Field(pattern=LICENCE_PATTERN)]
Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _check_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _check_id(text: str) -> str:
    if not ID_PATTERN.fullmatch(text):
        raise ValueError(f"malformed id {text[:100]!r}")
    return text


class OwnModel(Section):
    """A model that the user's program brought: it can be loaded with that class only."""

    name: Literal["own"] = "own"
    class_name: Annotated[str, Field(max_length=200)]
    """Example: "my_package.MyNetwork"."""
    channels: int = 3
    """Of the images that it is given."""


class Card(Contract):
    """What is known of an initialization. Version 1 had neither `version` nor `finetune`, version 2 no `licence`."""

    CURRENT: ClassVar[int] = 3

    id: Annotated[str, AfterValidator(_check_id)]
    model: OwnModel | ModelConfig
    method: AnyMethod
    alpha: FiniteFloat
    beta: FiniteFloat | None
    inner_steps: int
    trajectories: int
    tasks: tuple[Annotated[str, Field(max_length=200)], ...]
    spent: dict[str, int]
    """Gradients computed over all tasks: inner, held-out, Hessian products."""
    seed: int
    versions: dict[str, str]
    """Of Python and the packages that decide results, and the kind of processor with its number of threads."""
    sha256: Checksum
    """Of phi.safetensors."""
    size: Annotated[int, Field(ge=0)]
    """Bytes of phi.safetensors."""
    num_parameters: Annotated[int, Field(ge=0)]
    metrics: dict[str, Metric]
    """`loss_curve` [[inner steps, loss], …], `final_loss`, and what a sweep or a comparison adds."""
    created: Annotated[str, AfterValidator(_check_time)]
    """ISO time."""
    finetune: FinetuneConfig | None = None
    """The recipe that the run's config names for fine-tuning."""
    licence: Licence = "other"
    """Of the weights, as hubs name licences; the images' own licences decide."""

    @property
    def own_class(self) -> str | None:
        """The class that only the user's own program has, if the model is of one."""
        return self.model.class_name if isinstance(self.model, OwnModel) else None

    @property
    def built_in(self) -> ModelConfig:
        """The model to build; ValueError when only the user's own program can."""
        if isinstance(self.model, OwnModel):
            raise ValueError(
                f"initialization {self.id} is of your own model {self.model.class_name}: "
                "pass it, as in load_initialization(..., model=MyNetwork)"
            )
        return self.model.model_copy(update={"weights": None})


def readme(card: Card) -> str:
    """The card for people, with the front matter that model hubs read."""
    front = f"---\n{yaml.safe_dump(front_matter(card), sort_keys=False)}---\n"
    kind = card.own_class or card.model.name
    return f"""{front}# {card.id}

A {kind} backbone ({card.num_parameters:,} parameters) to start fine-tuning from, meta-trained with
`{card.method.name}` on {len(card.tasks)} datasets: {", ".join(card.tasks)}.

| what | value |
|---|---|
| inner learning rate alpha | {card.alpha} |
| meta learning rate beta | {card.beta} |
| inner steps K x trajectories M | {card.inner_steps} x {card.trajectories} |
| inner gradients spent, all tasks | {card.spent.get("inner", 0):,} |
| seed | {card.seed} |
| sha256 of {PHI} | `{card.sha256}` |

```python
import rayctsl
module = rayctsl.load_initialization("PATH OR ID", num_classes=10)
```
"""


def front_matter(card: Card) -> dict[str, object]:
    """What the Hub reads of a card; `model-index` carries the result."""
    datasets = list(dict.fromkeys(task.partition("@")[0] for task in card.tasks))
    front: dict[str, object] = {
        "license": card.licence,
        "library_name": "rayctsl",
        "pipeline_tag": "image-classification",
        "tags": ["meta-learning", "image-classification", "safetensors"],
        "datasets": datasets,
    }
    known = {"loss": card.metrics.get("final_loss"), "accuracy": card.metrics.get("validation_accuracy")}
    metrics = [{"type": kind, "value": value} for kind, value in known.items() if isinstance(value, (int, float))]
    if metrics:
        dataset = {"name": "the meta-training tasks", "type": datasets[0]}
        result = {"task": {"type": "image-classification"}, "dataset": dataset, "metrics": metrics}
        front["model-index"] = [{"name": card.id, "results": [result]}]
    return front
