"""Initializations as folders that can be handed on: `phi.safetensors`, `card.json`, `README.md`.

Save, load, list, verify. An initialization is found by its path, or by its id under a storage: directly, among
`initializations/`, or inside run folders. Nothing here ever unpickles a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayctsl import hub, zoo
from rayctsl.card import CARD, ID_PATTERN, PHI, README, Card, OwnModel, readme
from rayctsl.config import Config
from rayctsl.contract import package_versions, read_contract
from rayctsl.storage import Storage
from rayctsl.words import suggest

if TYPE_CHECKING:
    from torch import nn

NONE, IMAGENET, TIMM = "none", "imagenet", "timm/"  # starts that are no initialization of ours
RUNS = "runs"  # where training commands put their folders unless told otherwise

PUBLISHED, RUN_FOLDER = "initializations", "initialization"
NOT_RUNS = (PUBLISHED, "jobs", "workers", "service", "datasets")


def storage_root(root: str | None = None) -> str:
    """The storage asked for, else RAYCTSL_STORAGE, else the user's cache."""
    return root or os.environ.get("RAYCTSL_STORAGE") or str(Path.home() / ".cache" / "rayctsl" / "storage")


@dataclass(frozen=True)
class Initialization:
    """A saved initialization: where it is and what its card says."""

    storage: Storage
    card: Card

    @property
    def id(self) -> str:
        return self.card.id

    @property
    def path(self) -> str:
        """The folder or URI it is in: what `load_initialization` and `--init` take."""
        return str(self.storage)

    def phi_bytes(self) -> bytes:
        """The weights file, its checksum verified."""
        try:
            data = self.storage.read(PHI)
        except FileNotFoundError:
            raise ValueError(f"initialization {self.id} has no {PHI} (in {self.storage})") from None
        if hashlib.sha256(data).hexdigest() != self.card.sha256:
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

    def into(self, module: nn.Module) -> nn.Module:
        """Copy phi into a plain PyTorch module of the same names and shapes; what is left must be one layer.

        Example: initialization.into(torchvision.models.resnet18(num_classes=10))
        """
        own, phi = dict(module.named_parameters()), self.phi()
        for name, value in phi.items():
            if name not in own or own[name].shape != value.shape:
                what = f"has no {name!r}" if name not in own else f"has another shape of {name!r}"
                raise ValueError(f"initialization {self.id} does not fit into this module, which {what}")
        left = {name.rpartition(".")[0] for name in own if name not in phi}
        if len(left) > 1:
            raise ValueError(
                f"initialization {self.id} has nothing for {', '.join(sorted(left)[:3])}: another network?"
            )
        for name, value in phi.items():
            own[name].data.copy_(value)
        return module


def save_initialization(
    storage: Storage,
    phi: Mapping[str, Any],
    config: Config,
    *,
    spent: Mapping[str, int],
    metrics: Mapping[str, Any],
    computed_on: str | None = None,
) -> Initialization:
    """Write the three files; the card comes last, so a folder with a card is complete."""
    from safetensors.torch import save

    data = save(dict(phi), metadata={"format": "pt"})  # a second key would make the order, and so the sha256, random
    checksum = hashlib.sha256(data).hexdigest()
    own = config.model.own
    model = OwnModel(class_name=own, channels=config.data.channels) if own else config.model
    card = Card(
        id=f"{config.method.name}-{model.name.replace('/', '-')}-{checksum[:8]}",
        model=model,
        method=config.method,
        alpha=config.inner.alpha,
        beta=config.method.beta,
        inner_steps=config.inner_steps,
        trajectories=config.trajectories,
        tasks=config.data.tasks,
        spent=dict(spent),
        seed=config.seed,
        versions=package_versions() | ({"processor": computed_on} if computed_on else {}),
        sha256=checksum,
        size=len(data),
        num_parameters=sum(value.numel() for value in phi.values()),
        metrics=dict(metrics),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        finetune=config.finetune,
    )
    return _write(storage, data, card)


def rewrite(initialization: Initialization, storage: Storage, card: Card) -> Initialization:
    """The same weights elsewhere, with another card."""
    return _write(storage, initialization.phi_bytes(), card)


def _write(storage: Storage, phi: bytes, card: Card) -> Initialization:
    storage.write(PHI, phi)
    storage.write(README, readme(card).encode())
    storage.write(CARD, card.to_bytes())
    return Initialization(storage, card)


def open_initialization(path_or_id: str | Path, root: str | None = None) -> Initialization:
    """Find an initialization by folder (or run folder), or by id under `root`: the storage and ./runs when absent.

    `zoo/<name>` comes with the package, `hf-hub:<owner>/<name>@<revision>` from the Hub.
    """
    text = str(path_or_id)
    if text.startswith(zoo.PREFIX) and not os.path.isdir(text):
        text = str(zoo.zoo_folder(text))
    elif text.startswith(hub.PREFIX):
        text = str(hub.download(text))
    if "://" in text or os.path.isdir(text):
        here = Storage(text)
        for candidate in (here, here.inside(RUN_FOLDER)):
            if found := _read(candidate):
                return found
        raise ValueError(f"{text} holds no initialization (no {CARD} in it)")
    if ID_PATTERN.fullmatch(text):
        found_all = list_initializations(root) if root else [*list_initializations(), *list_initializations(RUNS)]
        for initialization in found_all:
            if initialization.id == text:
                return initialization
        where = root or f"{storage_root()} and ./{RUNS}"
        known = suggest(text, [initialization.id for initialization in found_all])
        raise ValueError(f"there is no initialization {text!r} in {where}{known}")
    raise ValueError(f"{text} is neither a folder with an initialization nor an id")


def check_start(text: str, root: str | None = None) -> None:
    """Refuse an initialization that is not there, before torch is imported; others' weights are looked for later."""
    name = text.partition("@")[0]
    if name not in (NONE, IMAGENET) and not name.startswith((TIMM, hub.PREFIX)):
        open_initialization(text, root)


def list_initializations(root: str | None = None) -> list[Initialization]:
    """Every initialization under a storage, newest first."""
    base = Storage(storage_root(root))
    places = [base.inside(folder) if folder else base for folder in initialization_folders(base)]
    found = {item.id: item for place in places if (item := _read(place))}
    return sorted(found.values(), key=lambda item: (item.card.created, item.id), reverse=True)


def initialization_folders(base: Storage) -> Iterator[str]:
    """Every folder below a storage where an initialization may be: itself, run folders, and `initializations/`."""
    yield ""
    yield RUN_FOLDER
    for name in base.names():
        if name not in NOT_RUNS:
            yield name
            yield f"{name}/{RUN_FOLDER}"
    for name in base.names(PUBLISHED):
        yield f"{PUBLISHED}/{name}"


def publish(initialization: Initialization, root: str | None = None) -> Initialization:
    """Copy an initialization into a storage under its id."""
    target = Storage(storage_root(root)).inside(f"{PUBLISHED}/{initialization.id}")
    return rewrite(initialization, target, initialization.card)


def stock(root: str | None = None) -> list[Initialization]:
    """Put the zoo into a storage that has nothing to offer yet; returns what was put there."""
    base = Storage(storage_root(root))
    if any(base.exists(f"{folder}/{CARD}" if folder else CARD) for folder in initialization_folders(base)):
        return []
    return [publish(open_initialization(f"{zoo.PREFIX}{name}"), root) for name in zoo.ZOO]


def _read(storage: Storage) -> Initialization | None:
    try:
        data = storage.read(CARD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Initialization(storage, read_contract(Card, data, f"{storage}/{CARD}"))
