"""Images that users send: received piece by piece, imported by a process with little power, named per owner.

Whatever a service that died left half done is cleared away by the next. Disks are touched in threads only.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from rayctsl.data.roots import open_root
from rayctsl.jobs.importer import Limits, unpacked
from serve.datasets import is_private, stored_name, unknown_dataset
from serve.importing import run_importer
from serve.inbox import Inbox, Upload
from serve.problems import CLOSE, HttpProblem, log

IMPORTS_AT_ONCE = 2
ABANDONED_SECONDS = 3600.0
MIB = 2**20


class Uploads:
    """The datasets of a service's users, and how they become such.

    Args:
        max_bytes: of an archive.
        share: bytes that all datasets of one owner may take.
        patience: seconds that a sender may be silent.
    """

    def __init__(
        self,
        folder: Path,
        root: str,
        max_bytes: int,
        share: int,
        *,
        limits: Limits | None = None,
        patience: float = 30.0,
    ):
        self.inbox, self.root, self.max_bytes, self.share = Inbox(folder), root, max_bytes, share
        self.limits, self._patience = limits or Limits(), patience
        self._turns = asyncio.Semaphore(IMPORTS_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._receiving: set[str] = set()
        self._settling = threading.Lock()

    def clear_away(self, alone: bool) -> None:
        """Remove what nobody is at any more: what has been left half done for long, and all of it when we are alone
        and have just started, for then its process is gone."""
        for upload in self.inbox.all():
            old = time.time() - upload.changed_at > ABANDONED_SECONDS
            if upload.status == "importing" and (alone or old) and upload.stored not in self._tasks:
                self._fail(upload, "the service was restarted meanwhile: send the archive again")
            elif upload.status == "receiving" and old and upload.stored not in self._receiving:
                self.remove(upload)

    def resolve(self, name: str, owner: str | None) -> str:
        """What the data root calls the dataset that a caller names: their own first, then everybody's."""
        own = stored_name(name, owner)
        if self.inbox.find(own) is not None:
            return own
        if is_private(name):
            raise unknown_dataset(name)
        return name

    def resolve_ready(self, name: str, owner: str | None) -> str:
        """The same for a dataset that is to be used now."""
        stored = self.resolve(name, owner)
        upload = self.inbox.find(stored)
        if upload is not None and upload.status != "ready":
            why = upload.error if upload.status == "failed" else "wait for its import"
            raise HttpProblem(409, f"Dataset '{name}' is {upload.status}: {why}.", "dataset-not-ready")
        return stored

    def room_for(self, upload: Upload, announced: int, bounded: bool) -> int:
        """Bytes that may come: an archive's limit, or what the owner's other datasets leave; 413 when it is less than
        what was announced."""
        left = self.share - self.inbox.taken(upload.owner, upload.stored) if bounded else self.max_bytes
        room = min(self.max_bytes, max(0, left))
        if announced > room or not room:
            raise self._too_much(room)
        return room

    def _too_much(self, room: int) -> HttpProblem:
        if room == self.max_bytes:
            return HttpProblem(413, f"An archive may have {self.max_bytes // MIB} MiB.", headers=CLOSE)
        detail = f"Your datasets may take {self.share // MIB} MiB, and {room // MIB} are left: delete some."
        return HttpProblem(413, detail, "share-full", CLOSE)

    async def receive(self, upload: Upload, body: AsyncIterator[bytes], start: int, room: int) -> Upload:
        """Take the bytes from `start` on; the upload is complete when all of its total (or of the body) is there.

        A body without a total is whole or nothing; with one, what came before a cut connection is kept.
        """
        if upload.stored in self._receiving or upload.stored in self._tasks:
            raise HttpProblem(409, f"Dataset '{upload.name}' is being sent already.", "upload-busy")
        self._receiving.add(upload.stored)
        try:
            await asyncio.to_thread(self._check_start, upload, start)
            try:
                await self._append(upload, body, start, room)
            except BaseException:
                await asyncio.to_thread(self._cut_off, upload)
                raise
            return await asyncio.to_thread(self._note_received, upload)
        finally:
            self._receiving.discard(upload.stored)

    def _check_start(self, upload: Upload, start: int) -> None:
        archive = self.inbox.archive(upload.stored)
        archive.parent.mkdir(parents=True, exist_ok=True)
        there = archive.stat().st_size if archive.exists() and start else 0
        if start != there:
            raise HttpProblem(409, f"Of '{upload.name}' {there} bytes are here: go on from there.", "upload-offset")

    async def _append(self, upload: Upload, body: AsyncIterator[bytes], start: int, room: int) -> None:
        received, blocks, archive = start, aiter(body), self.inbox.archive(upload.stored)
        file = await asyncio.to_thread(archive.open, "ab" if start else "wb")
        try:
            while True:
                try:
                    async with asyncio.timeout(self._patience):
                        block = await anext(blocks, None)
                except TimeoutError:
                    raise HttpProblem(408, f"Nothing came for {self._patience:.0f} s.", headers=CLOSE) from None
                if block is None:
                    return
                received += len(block)
                if received > room:
                    raise self._too_much(room)
                if upload.total is not None and received > upload.total:
                    raise HttpProblem(422, f"More than the announced {upload.total} bytes came.", headers=CLOSE)
                await asyncio.to_thread(file.write, block)
        finally:
            await asyncio.to_thread(file.close)

    def _cut_off(self, upload: Upload) -> None:
        archive = self.inbox.archive(upload.stored)
        if upload.total is None:
            archive.unlink(missing_ok=True)
        elif archive.exists():
            self.inbox.write(upload.changed(received=archive.stat().st_size))

    def _note_received(self, upload: Upload) -> Upload:
        archive = self.inbox.archive(upload.stored)
        upload = upload.changed(received=archive.stat().st_size)
        if upload.total in (None, upload.received):
            with archive.open("rb") as file:
                upload = upload.changed(sha256=hashlib.file_digest(file, "sha256").hexdigest())
        return self.inbox.write(upload)

    async def start_import(self, upload: Upload, size: int | None, seed: int, bounded: bool) -> Upload:
        """Begin to import a complete upload; it goes on after the request has been answered."""
        upload = upload.changed(status="importing", size=size)
        self._receiving.add(upload.stored)  # nobody may send it anew before the import has it
        try:
            upload = await asyncio.to_thread(self.inbox.write, upload)
            task = self._tasks[upload.stored] = asyncio.create_task(self._import(upload, seed, bounded))
            task.add_done_callback(lambda _: self._tasks.pop(upload.stored, None))
        finally:
            self._receiving.discard(upload.stored)
        return upload

    async def _import(self, upload: Upload, seed: int, bounded: bool) -> None:
        archive = self.inbox.archive(upload.stored)

        async def show(stage: str) -> None:
            await asyncio.to_thread(self.inbox.write, upload.changed(stage=stage))

        async with self._turns:
            error = await run_importer(archive, upload.stored, self.root, self.limits, upload.size, seed, show)
        if error is None:
            error = await asyncio.to_thread(self._settle, upload, bounded)
        if error is not None:
            log.info("import of %s: %s", upload.stored, error)
            await asyncio.to_thread(self._fail, upload, error)

    def _settle(self, upload: Upload, bounded: bool) -> str | None:
        """Take the dataset into its owner's share; returns why it does not fit."""
        takes = open_root(self.root).describe(upload.stored).num_bytes
        with self._settling:
            left = self.share - self.inbox.taken(upload.owner, upload.stored)
            if bounded and takes > left:
                return f"it takes {takes // MIB} MiB, and of your {self.share // MIB} MiB {left // MIB} are left"
            self.inbox.archive(upload.stored).unlink(missing_ok=True)
            self.inbox.write(upload.changed(status="ready", kept=takes))
        return None

    async def delete(self, upload: Upload) -> None:
        """The dataset, its document, and whatever is under way."""
        if task := self._tasks.get(upload.stored):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self.remove, upload)

    def remove(self, upload: Upload) -> None:
        """A dataset that nobody is importing."""
        self._clear(upload.stored)
        self.inbox.forget(upload.stored)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _fail(self, upload: Upload, error: str) -> None:
        self._clear(upload.stored)
        self.inbox.write(upload.changed(status="failed", stage="", error=error))

    def _clear(self, stored: str) -> None:
        """All but the document; also what an import that was killed left behind."""
        archive = self.inbox.archive(stored)
        shutil.rmtree(unpacked(archive), ignore_errors=True)
        archive.unlink(missing_ok=True)
        open_root(self.root).remove(stored)
