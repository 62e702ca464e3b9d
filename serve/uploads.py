"""Images that users send: received piece by piece, imported by a process with little power, named per owner.

An upload is `<stored name>.archive` and `<stored name>.json` in the inbox; the archive goes when its import ends, the
document stays with the dataset. Whatever a service that died left half done is cleared away by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from starlette.requests import Request

from rayctsl.contract import Contract, read_contract
from rayctsl.data.library import MARK
from rayctsl.data.roots import open_root
from rayctsl.jobs.importer import Limits
from serve.problems import HttpProblem, log

UploadStatus = Literal["receiving", "importing", "ready", "failed"]
IMPORTS_AT_ONCE = 2
ABANDONED_SECONDS = 3600.0
SEPARATOR = MARK  # between a dataset's name and its owner's


class Upload(Contract):
    """What is known of an upload."""

    name: str
    """As its owner calls it."""
    stored: str
    """As the data root does."""
    status: UploadStatus
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
    changed_at: float


def owner_of(request: Request) -> str:
    """Who asks: the name of the key that the request came with, nobody in particular without keys."""
    return str(getattr(request.scope.get("caller"), "name", None) or "")


def stored_name(name: str, owner: str) -> str:
    """Example: stored_name("flowers", "") == "flowers"; with keys, every owner has names of their own."""
    return f"{name}{SEPARATOR}{hashlib.sha256(owner.encode()).hexdigest()[:8]}" if owner else name


def is_visible(stored: str, owner: str) -> bool:
    """Everybody's datasets, and the owner's own."""
    return SEPARATOR not in stored or (bool(owner) and stored == stored_name(stored.partition(SEPARATOR)[0], owner))


class Uploads:
    """The inbox of one service."""

    def __init__(self, folder: Path, root: str, max_bytes: int, limits: Limits | None = None):
        self.folder, self.root, self.max_bytes, self.limits = folder, root, max_bytes, limits or Limits()
        self._turns = asyncio.Semaphore(IMPORTS_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._receiving: set[str] = set()

    def clear_away(self) -> None:
        """At the start: what another process was at is lost, its user is told, its files go."""
        for path in self.folder.glob("unpacked-*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob("*.json"):
            upload = self.find(path.stem)
            if upload and upload.status == "importing":
                self._fail(upload, "the service was restarted meanwhile: send the archive again")
            elif upload and upload.status == "receiving" and time.time() - upload.changed_at > ABANDONED_SECONDS:
                self.forget(upload.stored)

    def find(self, stored: str) -> Upload | None:
        try:
            return read_contract(Upload, (self.folder / f"{stored}.json").read_bytes(), "the upload's document")
        except (FileNotFoundError, ValueError):
            return None

    def resolve(self, name: str, owner: str) -> str:
        """What the data root calls the dataset that a caller names: their own first, then everybody's."""
        own = stored_name(name, owner)
        if self.find(own) is None and SEPARATOR in name:
            raise HttpProblem(404, f"Dataset '{name}' is unknown; GET /datasets lists all.", "unknown-dataset")
        return own if self.find(own) is not None else name

    async def receive(
        self, name: str, stored: str, body: AsyncIterator[bytes], start: int = 0, total: int | None = None
    ) -> Upload:
        """Take the bytes from `start` on; the upload is complete when all of `total` (or of the body) is there.

        A body without a total is whole or nothing; with one, what came before a cut connection is kept.
        """
        if stored in self._receiving:
            raise HttpProblem(409, f"Dataset '{name}' is being sent already.", "upload-busy")
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self._archive(stored)
        there = archive.stat().st_size if archive.exists() and start else 0
        if start != there:
            raise HttpProblem(409, f"Of '{name}' {there} bytes are here: go on from there.", "upload-offset")
        self._receiving.add(stored)
        try:
            await self._append(archive, start, body)
        except BaseException:
            if total is None:
                archive.unlink(missing_ok=True)
            else:
                self._write(_received(name, stored, archive, total))
            raise
        finally:
            self._receiving.discard(stored)
        upload = _received(name, stored, archive, total)
        if total is None or upload.received == total:
            upload = upload.changed(sha256=await asyncio.to_thread(_sha256, archive))
        self._write(upload)
        return upload

    async def _append(self, archive: Path, start: int, body: AsyncIterator[bytes]) -> None:
        received = start
        with archive.open("ab" if start else "wb") as file:
            async for block in body:
                received += len(block)
                if received > self.max_bytes:
                    raise HttpProblem(413, f"An archive may have {self.max_bytes // 2**20} MiB.")
                await asyncio.to_thread(file.write, block)

    def start_import(self, upload: Upload, size: int | None, seed: int) -> Upload:
        """Begin to import a complete upload; it goes on after the request has been answered."""
        upload = upload.changed(status="importing", size=size, changed_at=_now())
        self._write(upload)
        task = asyncio.create_task(self._import(upload, seed))
        self._tasks[upload.stored] = task
        task.add_done_callback(lambda _: self._tasks.pop(upload.stored, None))
        return upload

    async def _import(self, upload: Upload, seed: int) -> None:
        words = [sys.executable, "-m", "rayctsl.jobs.importer", str(self._archive(upload.stored))]
        words += ["--name", upload.stored, "--root", self.root, "--seed", str(seed)]
        words += ["--size", str(upload.size)] if upload.size else []
        limits = self.limits
        words += ["--files", str(limits.files), "--unpacked-bytes", str(limits.unpacked_bytes)]
        words += ["--memory-bytes", str(limits.memory_bytes), "--seconds", str(limits.seconds)]
        error = "the import ended without a word"
        async with self._turns:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=self.folder,
                env={key: os.environ[key] for key in ("PATH", "LANG", "RAYCTSL_CACHE", "HOME") if key in os.environ},
                start_new_session=True,
            )
            try:
                assert process.stdout is not None
                async for line in process.stdout:
                    said = json.loads(line)
                    error = said.get("error") or error
                    if "stage" in said:
                        upload = upload.changed(
                            stage=f"{said['stage']} {said.get('files', '')}".strip(), changed_at=_now()
                        )
                        self._write(upload)
                code = await process.wait()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                raise
        self._archive(upload.stored).unlink(missing_ok=True)
        if code == 0:
            self._write(upload.changed(status="ready", stage="", changed_at=_now()))
        else:
            log.info("import of %s ended with %d: %s", upload.stored, code, error)
            self._fail(upload, error if code > 0 else "the import used more time or memory than it may")

    async def delete(self, upload: Upload) -> None:
        """The dataset, its document, and whatever is under way."""
        if task := self._tasks.get(upload.stored):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(open_root(self.root).remove, upload.stored)
        self.forget(upload.stored)

    def forget(self, stored: str) -> None:
        self._archive(stored).unlink(missing_ok=True)
        (self.folder / f"{stored}.json").unlink(missing_ok=True)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _fail(self, upload: Upload, error: str) -> None:
        self._archive(upload.stored).unlink(missing_ok=True)
        self._write(upload.changed(status="failed", stage="", error=error, changed_at=_now()))

    def _archive(self, stored: str) -> Path:
        return self.folder / f"{stored}.archive"

    def _write(self, upload: Upload) -> None:
        path = self.folder / f"{upload.stored}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(upload.to_bytes())
        os.replace(temporary, path)


def _received(name: str, stored: str, archive: Path, total: int | None) -> Upload:
    received = archive.stat().st_size
    return Upload(name=name, stored=stored, status="receiving", received=received, total=total, changed_at=_now())


def _now() -> float:
    return round(time.time(), 3)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
