"""Images that users send: received piece by piece, imported by a process with little power, named per owner.

An upload is `<stored name>.archive` and `<stored name>.json` in the inbox; the archive goes when its import ends, the
document stays with the dataset. Whatever a service that died left half done is cleared away by the next.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from rayctsl.contract import Contract, read_contract
from rayctsl.data.roots import open_root
from rayctsl.jobs.importer import Limits, unpacked
from serve.datasets import is_private, stored_name
from serve.importing import run_importer
from serve.problems import CLOSE, HttpProblem, log

UploadStatus = Literal["receiving", "importing", "ready", "failed"]
IMPORTS_AT_ONCE = 2
ABANDONED_SECONDS = 3600.0


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
    sha256: str | None = None
    """Of the archive."""
    size: int | None = None
    """Pixels a side that were asked for."""
    stage: str = ""
    error: str | None = None
    changed_at: float = 0.0


class Uploads:
    """The inbox of one service.

    Args:
        patience: seconds that a sender may be silent.
    """

    def __init__(
        self, folder: Path, root: str, max_bytes: int, *, limits: Limits | None = None, patience: float = 30.0
    ):
        self.folder, self.root, self.max_bytes, self.limits = folder, root, max_bytes, limits or Limits()
        self._patience = patience
        self._turns = asyncio.Semaphore(IMPORTS_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._receiving: set[str] = set()

    def clear_away(self, alone: bool) -> None:
        """Remove what nobody is at any more: what has been left half done for long, and all of it when we are alone
        and have just started, for then its process is gone."""
        for upload in self.all():
            old = _age(upload.changed_at) > ABANDONED_SECONDS
            if upload.status == "importing" and (alone or old) and upload.stored not in self._tasks:
                self._fail(upload, "the service was restarted meanwhile: send the archive again")
            elif upload.status == "receiving" and old and upload.stored not in self._receiving:
                self.remove(upload)

    def all(self) -> list[Upload]:
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.json")))
        return [upload for upload in found if upload is not None]

    def find(self, stored: str) -> Upload | None:
        try:
            return read_contract(Upload, self._document(stored).read_bytes(), "the upload's document")
        except (FileNotFoundError, ValueError):
            return None

    def resolve(self, name: str, owner: str | None) -> str:
        """What the data root calls the dataset that a caller names: their own first, then everybody's."""
        own = stored_name(name, owner)
        if self.find(own) is not None:
            return own
        if is_private(name):
            raise HttpProblem(404, f"Dataset '{name}' is unknown; GET /datasets lists all.", "unknown-dataset")
        return name

    def resolve_ready(self, name: str, owner: str | None) -> str:
        """The same for a dataset that is to be used now."""
        stored = self.resolve(name, owner)
        upload = self.find(stored)
        if upload is not None and upload.status != "ready":
            why = upload.error if upload.status == "failed" else "wait for its import"
            raise HttpProblem(409, f"Dataset '{name}' is {upload.status}: {why}.", "dataset-not-ready")
        return stored

    async def receive(self, upload: Upload, body: AsyncIterator[bytes], start: int = 0) -> Upload:
        """Take the bytes from `start` on; the upload is complete when all of its total (or of the body) is there.

        A body without a total is whole or nothing; with one, what came before a cut connection is kept.
        """
        if upload.stored in self._receiving:
            raise HttpProblem(409, f"Dataset '{upload.name}' is being sent already.", "upload-busy")
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self._archive(upload.stored)
        there = archive.stat().st_size if archive.exists() and start else 0
        if start != there:
            raise HttpProblem(409, f"Of '{upload.name}' {there} bytes are here: go on from there.", "upload-offset")
        self._receiving.add(upload.stored)
        try:
            await self._append(archive, start, upload.total, body)
        except BaseException:
            if upload.total is None:
                archive.unlink(missing_ok=True)
            else:
                self._write(upload.changed(received=archive.stat().st_size))
            raise
        finally:
            self._receiving.discard(upload.stored)
        upload = upload.changed(received=archive.stat().st_size)
        if upload.total in (None, upload.received):
            upload = upload.changed(sha256=await asyncio.to_thread(_sha256, archive))
        return self._write(upload)

    async def _append(self, archive: Path, start: int, total: int | None, body: AsyncIterator[bytes]) -> None:
        received, blocks = start, aiter(body)
        with archive.open("ab" if start else "wb") as file:
            while True:
                try:
                    async with asyncio.timeout(self._patience):
                        block = await anext(blocks, None)
                except TimeoutError:
                    raise HttpProblem(408, f"Nothing came for {self._patience:.0f} s.", headers=CLOSE) from None
                if block is None:
                    return
                received += len(block)
                if received > self.max_bytes:
                    raise HttpProblem(413, f"An archive may have {self.max_bytes // 2**20} MiB.", headers=CLOSE)
                if total is not None and received > total:
                    raise HttpProblem(422, f"More than the announced {total} bytes came.", headers=CLOSE)
                await asyncio.to_thread(file.write, block)

    def start_import(self, upload: Upload, size: int | None, seed: int) -> Upload:
        """Begin to import a complete upload; it goes on after the request has been answered."""
        upload = self._write(upload.changed(status="importing", size=size))
        task = asyncio.create_task(self._import(upload, seed))
        self._tasks[upload.stored] = task
        task.add_done_callback(lambda _: self._tasks.pop(upload.stored, None))
        return upload

    async def _import(self, upload: Upload, seed: int) -> None:
        archive = self._archive(upload.stored)

        def show(stage: str) -> None:
            self._write(upload.changed(stage=stage))

        async with self._turns:
            error = await run_importer(archive, upload.stored, self.root, self.limits, upload.size, seed, show)
        if error is None:
            archive.unlink(missing_ok=True)
            self._write(upload.changed(status="ready"))
        else:
            log.info("import of %s: %s", upload.stored, error)
            await asyncio.to_thread(self._fail, upload, error)

    async def delete(self, upload: Upload) -> None:
        """The dataset, its document, and whatever is under way."""
        if task := self._tasks.get(upload.stored):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self.remove, upload)

    def remove(self, upload: Upload) -> None:
        """A dataset that nobody is importing."""
        self._clear(upload.stored)
        self._document(upload.stored).unlink(missing_ok=True)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _fail(self, upload: Upload, error: str) -> None:
        self._clear(upload.stored)
        self._write(upload.changed(status="failed", stage="", error=error))

    def _clear(self, stored: str) -> None:
        """All but the document; also what an import that was killed left behind."""
        archive = self._archive(stored)
        shutil.rmtree(unpacked(archive), ignore_errors=True)
        archive.unlink(missing_ok=True)
        open_root(self.root).remove(stored)

    def _archive(self, stored: str) -> Path:
        return self.folder / f"{stored}.archive"

    def _document(self, stored: str) -> Path:
        return self.folder / f"{stored}.json"

    def _write(self, upload: Upload) -> Upload:
        upload = upload.changed(changed_at=round(time.time(), 3))
        temporary = self.folder / f"{upload.stored}.tmp"
        temporary.write_bytes(upload.to_bytes())
        os.replace(temporary, self._document(upload.stored))
        return upload


def _age(moment: float) -> float:
    return time.time() - moment


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
