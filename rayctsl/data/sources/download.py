"""Publishers' files on this disk: resumed where a connection was cut, checked against their sum, or asked for by name.

A file under way is called `<name>.part` and keeps its place between runs; it gets its name when its sum is right.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from rayctsl.data.entries import Entry, RemoteFile
from rayctsl.data.local_root import locked
from rayctsl.progress import Progress

BLOCK = 2**20
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5  # in a row without a single new byte
FIRST_PAUSE_SECONDS = 0.5
CUT_OFF = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class DownloadError(RuntimeError):
    """A file that could not be fetched; the message says what to download, from where, and where to put it."""

    exit_code = 1


def fetch_files(entry: Entry, folder: Path) -> None:
    """Have every file of a dataset in `folder`, whole and with the right sum."""
    by_hand = [file.name for file in entry.files if not file.url and not (folder / file.name).exists()]
    if by_hand:
        why = f"{entry.name} cannot be downloaded by a program ({entry.by_hand})"
        raise DownloadError(f"{why}: get {', '.join(by_hand)} from {entry.home} and put them into {folder}")
    with Progress(len(entry.files), f"{entry.name}: files", unit="file") as progress:
        for file in entry.files:
            fetch_file(file, folder, entry.name)
            progress.advance(1)


def fetch_file(file: RemoteFile, folder: Path, dataset: str) -> Path:
    """One file, downloaded unless it is there; a sum that does not fit is refused by name."""
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / f".{target.name}.lock"):  # datasets may share a file
        if not target.exists():
            part = target.with_name(f"{target.name}.part")
            resumed = part.exists()
            _download(file, part, target, dataset)
            if resumed and not _fits(part, file):
                part.unlink()  # begun with another version of the file: once more from the start
                _download(file, part, target, dataset)
            if not _fits(part, file):
                part.unlink()
                raise _please_fetch(file, target, dataset, "its content is not what is expected: wrong md5 sum")
            os.replace(part, target)
        elif not _fits(target, file):
            raise ValueError(f"{dataset}: {target} is damaged or another file (wrong md5 sum); remove it and try again")
    return target


def _download(file: RemoteFile, part: Path, target: Path, dataset: str) -> None:
    """Append to `part` until the file is complete, over as many connections as it takes."""
    with Progress(None, f"{dataset}: {file.name}", unit="B") as progress:
        failures = 0
        while True:
            have = part.stat().st_size if part.exists() else 0
            try:
                if _continue(file, part, have, progress):
                    return
                error: Exception = ConnectionError("the connection was cut")
            except CUT_OFF as caught:
                error = caught
                if isinstance(caught, urllib.error.HTTPError):
                    caught.close()
                    if caught.code < 500 and caught.code not in (408, 429):
                        raise _please_fetch(file, target, dataset, error) from error
            grown = part.exists() and part.stat().st_size > have
            failures = 1 if grown else failures + 1
            if failures >= ATTEMPTS:
                raise _please_fetch(file, target, dataset, error) from error
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (failures - 1))


def _continue(file: RemoteFile, part: Path, have: int, progress: Progress) -> bool:
    """One connection; True when the file is complete afterwards."""
    if file.first_bytes and have >= file.first_bytes:
        return True
    request = urllib.request.Request(file.url, headers={"User-Agent": "rayctsl"})
    last = str(file.first_bytes - 1) if file.first_bytes else ""
    if have or last:
        request.add_header("Range", f"bytes={have}-{last}")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing lies beyond what we have; its sum will tell whether that is all
            error.close()
            return True
        raise
    with response:
        resumes = response.status == 206
        start = have if resumes else 0
        if resumes and not (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
            raise http.client.HTTPException("the server answers with another range than asked for")
        length = response.headers.get("Content-Length")
        end = start + int(length) if length else None
        if file.first_bytes:
            end = min(end or file.first_bytes, file.first_bytes)
        progress.jump(start, end)
        with part.open("ab" if resumes else "wb") as out:
            done = start
            while end is None or done < end:
                block = response.read(min(BLOCK, end - done) if end else BLOCK)
                if not block:
                    break
                out.write(block)
                done += len(block)
                progress.advance(len(block))
        return end is None or done == end


def _please_fetch(file: RemoteFile, target: Path, dataset: str, error: Exception | str) -> DownloadError:
    reason = error.reason if type(error) is urllib.error.URLError else error
    return DownloadError(
        f"{dataset}: {file.url} cannot be downloaded ({reason}); "
        f"download it elsewhere, put it at {target}, and run the command again"
    )


def _fits(path: Path, file: RemoteFile) -> bool:
    if not file.md5:
        return True
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream, Progress(path.stat().st_size, f"checking {path.name}", unit="B") as progress:
        while block := stream.read(8 * BLOCK):
            digest.update(block)
            progress.advance(len(block))
    return digest.hexdigest() == file.md5
