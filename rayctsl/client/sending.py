"""Images on their way to a service: a folder packed as an archive, an archive sent and sent on, images by the batch."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import httpx

from rayctsl.client.connection import RETRIES, ServiceConnection, ServiceError, check, quoted, sha256_of
from rayctsl.contract import JsonObject

BLOCK = 2**20
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
BATCH_IMAGES, BATCH_BYTES = 100, 24 * 2**20
POLL_SECONDS = 0.5


class Sending(ServiceConnection):
    """A connection that archives go through."""

    def _send(
        self, name: str, archive: Path, query: dict[str, int | None], on_bytes: Callable[[int, int], None] | None
    ) -> None:
        """Send what the service has not got yet, again and again until all of it is there."""
        total = archive.stat().st_size
        params: dict[str, str | int] = {"name": name}
        params.update({key: value for key, value in query.items() if value is not None})
        before = there = self._find(name)
        for attempt in range(RETRIES):
            start = _received(there, total)
            headers = {"Content-Range": f"bytes {start}-{total - 1}/{total}", "Content-Length": str(total - start)}
            try:
                content = _blocks(archive, start, on_bytes)
                check(self._http.post("/datasets", params=params, content=content, headers=headers, timeout=120.0))
                return
            except (httpx.TransportError, ServiceError) as error:
                # After a break the service may still be at what came before it, as at the checksum of all.
                if isinstance(error, ServiceError) and not (attempt and error.kind == "upload-busy"):
                    raise
                if attempt == RETRIES - 1:
                    raise ServiceError(f"the upload broke off: {str(error).rstrip('.')}; run it again") from None
                time.sleep(0.5 * 2**attempt)
            there = self._find(name)
            if there != before and _is_whole(there, archive):  # only the answer was lost
                return

    def _find(self, name: str) -> JsonObject | None:
        try:
            found: JsonObject = self._ask("GET", f"/datasets/{quoted(name)}").json()
        except ServiceError:
            return None
        return found

    def _imported(self, name: str, on_stage: Callable[[str], None] | None) -> JsonObject:
        while True:
            dataset: JsonObject = self._ask("GET", f"/datasets/{quoted(name)}").json()
            if dataset["status"] == "failed":
                raise ServiceError(dataset["error"], 422)
            if dataset["status"] == "ready":
                return dataset
            if on_stage and dataset["stage"]:
                on_stage(dataset["stage"])
            time.sleep(POLL_SECONDS)


def _received(there: JsonObject | None, total: int) -> int:
    if there is None:
        return 0
    return int(there["received"]) if there["status"] == "receiving" and there["total"] == total else 0


def _is_whole(there: JsonObject | None, archive: Path) -> bool:
    """Whether the service has all of this archive, and not of another by its name."""
    if there is None or there["status"] not in ("importing", "ready"):
        return False
    return there.get("sha256") in (None, sha256_of(archive))


def _blocks(archive: Path, start: int, on_bytes: Callable[[int, int], None] | None) -> Iterator[bytes]:
    total = archive.stat().st_size
    with archive.open("rb") as file:
        file.seek(start)
        while block := file.read(BLOCK):
            yield block
            if on_bytes:
                on_bytes(file.tell(), total)


@contextlib.contextmanager
def packed(source: Path) -> Iterator[Path]:
    """An archive of a folder, the same bytes every time; an archive is taken as it is."""
    if source.is_file():
        yield source
        return
    if not source.is_dir():
        raise ValueError(f"there is no file or folder {source}")
    with tempfile.TemporaryDirectory(prefix="rayctsl-upload-") as folder:
        archive = Path(folder) / "images.tar"
        with tarfile.open(archive, "w") as out:
            for path in sorted(source.rglob("*")):
                if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
                    info = tarfile.TarInfo(path.relative_to(source).as_posix())
                    info.size = path.stat().st_size
                    with path.open("rb") as file:
                        out.addfile(info, file)
        yield archive


def find_images(sources: Iterable[str]) -> Iterator[Path]:
    """The files named, and all images below the folders named; ValueError for a folder without any."""
    for source in map(Path, sources):
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if _is_image(path))
            if not found:
                raise ValueError(f"the folder {source} has no images")
            yield from found
        elif source.is_file():
            yield source
        else:
            raise ValueError(f"there is no file {source}")


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def batches(images: Iterable[str | Path]) -> Iterator[list[Path]]:
    """Files in groups that one request takes."""
    group, size = list[Path](), 0
    for image in map(Path, images):
        length = image.stat().st_size
        if group and (len(group) == BATCH_IMAGES or size + length > BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(image)
        size += length
    if group:
        yield group
