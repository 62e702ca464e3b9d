"""A fine-tuned model as a folder: `model.safetensors`, `model.json` (its card) and `README.md`.

The weights file says by itself how to classify with it, so it can also be used alone.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rayctsl import hub
from rayctsl.card import OwnModel
from rayctsl.contract import package_versions, read_contract
from rayctsl.jobs.model import Finetuned, save_finetuned
from rayctsl.jobs.model_card import CARD, README, WEIGHTS, ModelCard, Origin, Preprocessing, SeedSummary, readme
from rayctsl.learning.evaluation import accuracy_interval, confusion_matrix
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.start import Start
from rayctsl.storage import Storage


@dataclass(frozen=True)
class SavedModel:
    """An opened model; a lone weights file has no card."""

    path: str
    finetuned: Finetuned
    card: ModelCard | None


def save_model(storage: Storage, tuner: Finetuner, start: Start, seed: int, seeds: SeedSummary) -> ModelCard:
    """Write a trained seed's model with its card."""
    dataset, info = tuner.dataset, tuner.dataset.train.info
    own = None
    if start.own is not None:
        own = OwnModel(class_name=start.own.class_name, channels=start.own.channels)
    data = save_finetuned(tuner.module, start.model, info)
    counts = confusion_matrix(tuner.module, dataset.test, tuner.normalize, dataset.num_classes)
    correct, total = int(np.trace(counts)), int(counts.sum())
    checksum = hashlib.sha256(data).hexdigest()
    height, width, channels = info.shape
    card = ModelCard(
        id=f"{dataset.name.replace('@', '-')}-{(own or start.model).name.replace('/', '-')}-{checksum[:8]}",
        model=own or start.model.model_copy(update={"weights": None}),
        dataset=dataset.name,
        dataset_checksum=info.checksum,
        class_names=info.class_names,
        preprocessing=Preprocessing(height=height, width=width, channels=channels, mean=info.mean, std=info.std),
        started_from=Origin(name=start.name, sha256=start.sha256),
        recipe=tuner.config,
        seed=seed,
        train_size=len(tuner.train_indices),
        test_size=total,
        accuracy=correct / total,
        accuracy_interval=accuracy_interval(correct, total),
        seeds=seeds,
        confusion=tuple(tuple(int(value) for value in row) for row in counts),
        sha256=checksum,
        size=len(data),
        num_parameters=sum(parameter.numel() for parameter in tuner.module.parameters()),
        versions=package_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_model(storage, card, data)
    return card


def open_model(path: str | Path) -> SavedModel:
    """A model's folder, its weights file, or `hf-hub:<owner>/<name>@<revision>`; ValueError for anything else.

    Example: open_model("hf-hub:me/flowers").card.accuracy
    """
    text = str(hub.download(str(path)) if str(path).startswith(hub.PREFIX) else path)
    if os.path.isfile(text):
        return SavedModel(text, Finetuned.load(Path(text).read_bytes()), None)
    card, data = read_model(Storage(text))
    return SavedModel(text, Finetuned.load(data), card)


def read_model(storage: Storage) -> tuple[ModelCard, bytes]:
    """A model's card and its weights file, the checksum verified."""
    try:
        card = read_contract(ModelCard, storage.read(CARD), f"{storage}/{CARD}")
        data = storage.read(WEIGHTS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{storage} holds no fine-tuned model: {_missing(error)} is not there") from None
    if hashlib.sha256(data).hexdigest() != card.sha256:
        raise ValueError(f"{WEIGHTS} in {storage} is damaged: its sha256 differs from the card's")
    return card, data


def write_model(storage: Storage, card: ModelCard, data: bytes) -> None:
    """The card comes last, so a folder with a card is complete."""
    storage.write(WEIGHTS, data)
    storage.write(README, readme(card).encode())
    storage.write(CARD, card.to_bytes())


def _missing(error: OSError) -> str:
    return WEIGHTS if WEIGHTS in str(error) else CARD
