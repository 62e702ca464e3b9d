"""The inbox: what is known of every upload, and its archive for as long as it is needed.

An upload is `<stored name>.archive` and `<stored name>.json`; the archive goes when its import ends, the document stays
with the dataset.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from rayctsl.contract import Contract, read_contract

UploadStatus = Literal["receiving", "importing", "ready", "failed"]


class Upload(Contract):
    """What is known of an upload."""

    name: str
    """As its owner calls it."""
    stored: str
    """As the data root does."""
    owner: str | None = None
    """The name of the API key that it came with."""
    status: UploadStatus = "receiving"
    received: int = 0
    """Bytes that have arrived."""
    total: int | None = None
    """Bytes that were announced."""
    kept: int = 0
    """Bytes of the dataset that it became."""
    sha256: str | None = None
    """Of the archive."""
    size: int | None = None
    """Pixels a side that were asked for."""
    stage: str = ""
    error: str | None = None
    changed_at: float = 0.0

    @property
    def takes(self) -> int:
        """Bytes of a disk that are its own, or going to be."""
        if self.status == "failed":
            return 0
        return self.kept if self.status == "ready" else max(self.received, self.total or 0)


class Inbox:
    """The uploads in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def all(self) -> list[Upload]:
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.json")))
        return [upload for upload in found if upload is not None]

    def find(self, stored: str) -> Upload | None:
        try:
            return read_contract(Upload, self._document(stored).read_bytes(), "the upload's document")
        except (FileNotFoundError, ValueError):
            return None

    def taken(self, owner: str | None, but: str) -> int:
        """Bytes that an owner's uploads take, but for one of them."""
        return sum(each.takes for each in self.all() if each.owner == owner and each.stored != but)

    def write(self, upload: Upload) -> Upload:
        upload = upload.changed(changed_at=round(time.time(), 3))
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"{upload.stored}.tmp"
        temporary.write_bytes(upload.to_bytes())
        os.replace(temporary, self._document(upload.stored))
        return upload

    def forget(self, stored: str) -> None:
        self._document(stored).unlink(missing_ok=True)

    def archive(self, stored: str) -> Path:
        return self.folder / f"{stored}.archive"

    def _document(self, stored: str) -> Path:
        return self.folder / f"{stored}.json"
