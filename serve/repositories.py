"""What the hub's protocol serves: initializations and published models, each a repository with one commit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayctsl.card import CARD, PHI, README
from rayctsl.jobs.model_card import WEIGHTS
from serve import models
from serve.models import Model, git_checksum

if TYPE_CHECKING:
    from serve.index import IndexEntry
    from serve.service import Service


@dataclass(frozen=True)
class Repository:
    """Example: Repository("shifting-resnet8-0a1b2c3d", "0a1b…", "2026-01-01T00:00:00+00:00", ("omniglot",), …)"""

    name: str
    commit: str
    created: str
    tags: tuple[str, ...]
    files: tuple[str, ...]
    large: str  # the one file that the hub keeps by its sha256
    sha256: str  # of that file
    entry: IndexEntry | None = None  # of an initialization

    def open(self, service: Service, name: str) -> tuple[int, str]:
        """A file and its checksum as the hub has it: large ones by their sha256, small ones by the name git gives."""
        file = service.index.open(self.entry, name) if self.entry else service.models.open(self.name, name)
        try:
            return file, self.sha256 if name == self.large else git_checksum(file)
        except BaseException:
            os.close(file)
            raise


def find_repository(service: Service, name: str) -> Repository | None:
    if (entry := service.index.by_id.get(name)) is not None:
        return of_initialization(entry)
    return of_model(model) if (model := service.models.find(name)) else None


def all_repositories(service: Service) -> list[Repository]:
    found = [of_initialization(entry) for entry in service.index.newest_first]
    return found + [of_model(model) for model in service.models.all()]


def of_initialization(entry: IndexEntry) -> Repository:
    card, files = entry.card, (CARD, README, PHI)
    return Repository(
        entry.id, entry.commit, card.created, ("meta-learning", *card.tasks), files, PHI, card.sha256, entry
    )


def of_model(model: Model) -> Repository:
    name, card, tags = model.record.name, model.card, ("fine-tuned", model.card.dataset)
    return Repository(name, model.commit, card.created, tags, models.FILES, WEIGHTS, card.sha256)
