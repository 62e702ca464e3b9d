"""Initializations as folders that can be handed on: `phi.safetensors`, `card.json`, `README.md`.

Save, load, list, verify. An initialization is found by its path, or by its id under a storage: directly, among
`initializations/`, or inside run folders. Nothing here ever unpickles a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayctsl.config import Config, suggest
from rayctsl.storage import Storage

PHI, CARD, README = "phi.safetensors", "card.json", "README.md"
ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,95}")


def storage_root(root: str | None = None) -> str:
    """The storage asked for, else RAYCTSL_STORAGE, else the user's cache."""
    return root or os.environ.get("RAYCTSL_STORAGE") or str(Path.home() / ".cache" / "rayctsl" / "storage")


@dataclass(frozen=True)
class Initialization:
    """A saved initialization: where it is and what its card says."""

    storage: Storage
    card: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.card["id"])

    def phi_bytes(self) -> bytes:
        """The weights file, its checksum verified."""
        try:
            data = self.storage.read(PHI)
        except FileNotFoundError:
            raise ValueError(f"initialization {self.id} has no {PHI} (in {self.storage})") from None
        if hashlib.sha256(data).hexdigest() != self.card["sha256"]:
            raise ValueError(f"{PHI} of initialization {self.id} is damaged: its sha256 differs from the card's")
        return data

    def phi(self) -> dict[str, Any]:
        """Backbone parameters under state-dict names."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self.phi_bytes())
        except SafetensorError as error:
            raise ValueError(f"{PHI} of initialization {self.id} is not a safetensors file: {error}") from None


def save_initialization(
    storage: Storage, phi: Mapping[str, Any], config: Config, *, spent: Mapping[str, int], metrics: Mapping[str, Any]
) -> Initialization:
    """Write the three files; the card comes last, so a folder with a card is complete."""
    from safetensors.torch import save

    data = save(dict(phi), metadata={"format": "pt"})  # a second key would make the order, and so the sha256, random
    checksum = hashlib.sha256(data).hexdigest()
    card = {
        "id": f"{config.method.name}-{config.model.name}-{checksum[:8]}",
        "model": config.model.model_dump(mode="json"),
        "method": config.method.model_dump(mode="json"),
        "alpha": config.inner.alpha,
        "beta": config.method.beta,
        "inner_steps": config.inner_steps,
        "trajectories": config.trajectories,
        "tasks": list(config.data.tasks),
        "spent": dict(spent),
        "seed": config.seed,
        "versions": _versions(),
        "sha256": checksum,
        "size": len(data),
        "num_parameters": sum(value.numel() for value in phi.values()),
        "metrics": dict(metrics),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    storage.write(PHI, data)
    storage.write(README, _readme(card).encode())
    storage.write(CARD, json.dumps(card, indent=2).encode())
    return Initialization(storage, card)


def open_initialization(path_or_id: str | Path, root: str | None = None) -> Initialization:
    """Find an initialization by folder (or run folder) or by id under `root`."""
    text = str(path_or_id)
    if "://" in text or os.path.isdir(text):
        here = Storage(text)
        for candidate in (here, here.inside("initialization")):
            if found := _read(candidate):
                return found
        raise ValueError(f"{text} holds no initialization (no {CARD} in it)")
    if ID_PATTERN.fullmatch(text):
        found_all = list_initializations(root)
        for initialization in found_all:
            if initialization.id == text:
                return initialization
        where = storage_root(root)
        known = suggest(text, [initialization.id for initialization in found_all])
        raise ValueError(f"there is no initialization {text!r} in {where}{known}")
    raise ValueError(f"{text} is neither a folder with an initialization nor an id")


def list_initializations(root: str | None = None) -> list[Initialization]:
    """Every initialization under a storage, newest first."""
    base = Storage(storage_root(root))
    places = [base, base.inside("initialization")]
    for name in base.names():
        places += [base.inside(name), base.inside(f"{name}/initialization")]
    places += [base.inside(f"initializations/{name}") for name in base.names("initializations")]
    found = {item.id: item for place in places if (item := _read(place))}
    return sorted(found.values(), key=lambda item: (item.card["created"], item.id), reverse=True)


def publish(initialization: Initialization, root: str | None = None) -> Initialization:
    """Copy an initialization into a storage under its id."""
    target = Storage(storage_root(root)).inside(f"initializations/{initialization.id}")
    target.write(PHI, initialization.phi_bytes())
    target.write(README, initialization.storage.read(README))
    target.write(CARD, json.dumps(initialization.card, indent=2).encode())
    return Initialization(target, initialization.card)


def load_initialization(
    path_or_id: str | Path,
    num_classes: int,
    *,
    root: str | None = None,
    model: Callable[[int], Any] | None = None,
    seed: int = 0,
) -> Any:
    """A torch module with the initialization's backbone and a fresh head for `num_classes`.

    Args:
        model: builds your own module from the number of classes, for initializations of your own models.
    """
    from rayctsl.models import build_model, find_head

    initialization = open_initialization(path_or_id, root)
    if model is None:
        options = {**initialization.card["model"], "weights": None}
        module = build_model(options.pop("name"), num_classes, seed=seed, **options)
    else:
        module = model(num_classes)
    load_backbone(module, initialization.phi(), find_head(module))
    return module


def load_backbone(module: Any, phi: Mapping[str, Any], head_name: str | None) -> None:
    """Copy phi into a module's backbone, refusing weights of another model."""
    from rayctsl.flat import FlatModule

    flat = FlatModule(module, head_name)
    flat.backbone.copy_(flat.flatten_backbone(phi))
    module.zero_grad(set_to_none=True)


def _read(storage: Storage) -> Initialization | None:
    try:
        card = json.loads(storage.read(CARD))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{storage}/{CARD} is damaged: {error}") from None
    if not isinstance(card, dict) or not {"id", "sha256", "model", "created"} <= card.keys():
        raise ValueError(f"{storage}/{CARD} is not the card of an initialization")
    if not ID_PATTERN.fullmatch(str(card["id"])):
        raise ValueError(f"{storage}/{CARD} has a malformed id")
    return Initialization(storage, card)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("rayctsl", "torch", "ray", "numpy")}
    return {"python": platform.python_version(), **packages}


def _readme(card: Mapping[str, Any]) -> str:
    tasks = ", ".join(card["tasks"])
    front = "---\nlibrary_name: rayctsl\ntags:\n- meta-learning\n- image-classification\n---\n"
    return f"""{front}# {card["id"]}

A {card["model"]["name"]} backbone ({card["num_parameters"]:,} parameters) to start fine-tuning from, meta-trained with
`{card["method"]["name"]}` on {len(card["tasks"])} datasets: {tasks}.

| what | value |
|---|---|
| inner learning rate alpha | {card["alpha"]} |
| meta learning rate beta | {card["beta"]} |
| inner steps K x trajectories M | {card["inner_steps"]} x {card["trajectories"]} |
| inner gradients spent, all tasks | {card["spent"].get("inner", 0):,} |
| seed | {card["seed"]} |
| sha256 of {PHI} | `{card["sha256"]}` |

```python
import rayctsl
module = rayctsl.load_initialization("PATH OR ID", num_classes=10)
```
"""
