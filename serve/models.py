"""Published models: fine-tuned models that outlive their jobs, under a name, with their card, for whoever may read.

`models/<name>/` in the storage holds what `rayctsl finetune --save` writes, and `published.json`, written last.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from rayctsl.contract import Contract, read_contract
from rayctsl.jobs.model_card import CARD, README, WEIGHTS, ModelCard, readme
from rayctsl.storage import Storage, open_regular
from serve.problems import HttpProblem

FOLDER, RECORD = "models", "published.json"
FILES = (CARD, README, WEIGHTS)


class Published(Contract):
    """Who published what."""

    name: str
    owner: str | None
    job: str
    created_at: float


@dataclass(frozen=True)
class Model:
    """All that is known of a published model."""

    record: Published
    card: ModelCard
    commit: str  # the hash of all that the card says, which includes the weights' checksum


class PublishedModels:
    """The models of one storage.

    Args:
        cache: where copies of a remote storage's files are kept.
    """

    def __init__(self, storage: Storage, cache: Path):
        self._storage, self._cache = storage, cache

    def all(self) -> list[Model]:
        return [model for name in self._storage.names(FOLDER) if (model := self.find(name))]

    def find(self, name: str) -> Model | None:
        """Read at once, for it may be deleted at any moment: None if any of it is gone, or cannot be read."""
        place = self._place(name)
        try:
            record, card = place.read(RECORD), place.read(CARD)
            return Model(
                read_contract(Published, record, f"model {name}"),
                read_contract(ModelCard, card, f"the card of model {name}"),
                commit_of(card),
            )
        except (FileNotFoundError, ValueError):
            return None

    def publish(self, name: str, owner: str | None, job: str, source: Storage, dataset: str) -> Model:
        """Copy a model out of its job's folder; the card takes its new name, and the dataset's own."""
        try:
            card = read_contract(ModelCard, source.read(CARD), "the model's card").changed(id=name, dataset=dataset)
            weights = source.read(WEIGHTS)
        except FileNotFoundError:
            raise HttpProblem(503, f"The model of job {job}, or its card, is missing from the storage.") from None
        place = self._place(name)
        place.write(WEIGHTS, weights)
        place.write(README, readme(card).encode())
        place.write(CARD, content := card.to_bytes())
        record = Published(name=name, owner=owner, job=job, created_at=round(time.time(), 3))
        place.write(RECORD, record.to_bytes())
        return Model(record, card, commit_of(content))

    def delete(self, name: str) -> None:
        self._place(name).delete(RECORD)
        self._storage.delete_folder(f"{FOLDER}/{name}")

    def open(self, name: str, file: str) -> int:
        """A descriptor of one of a model's files."""
        try:
            if self._storage.local:
                return open_regular(self._storage.root, f"{FOLDER}/{name}/{file}")
            kept = self._cache / FOLDER / commit_of(self._place(name).read(CARD))
            if not (kept / file).exists():
                Storage(kept).write(file, self._place(name).read(file))
            return open_regular(kept, file)
        except FileNotFoundError:
            raise HttpProblem(404, f"{file} of model {name} is missing.") from None

    def _place(self, name: str) -> Storage:
        return self._storage.inside(f"{FOLDER}/{name}")


def commit_of(card: bytes) -> str:
    return hashlib.sha256(card).hexdigest()[:40]


def git_checksum(file: int) -> str:
    """What git, and so the hub, calls a small file."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
