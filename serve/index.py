"""The initializations of a storage, kept in memory: cards are read again only when their files change.

`registry` knows how an initialization is laid out; here is what a thousand of them need to be listed in microseconds.
Files are opened without following links, and a card that cannot be read is left out and named, whatever is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs

from rayctsl.card import CARD, PHI, README, Card
from rayctsl.contract import read_contract
from rayctsl.registry import Initialization, initialization_folders, storage_root
from rayctsl.storage import Storage, open_regular
from rayctsl.words import one_line
from serve.problems import HttpProblem, log

REFRESH_SECONDS = 2.0
CARD_LIMIT = 4 * 1024 * 1024
Stamp = tuple[int, int]  # modification time and size


@dataclass
class IndexEntry:
    """An initialization with its JSON ready to be sent."""

    initialization: Initialization
    folder: str  # below the storage
    stamp: Stamp
    summary: bytes  # the card without the long parts of its metrics
    document: bytes
    search: str  # lower-case text of everything people search for
    commit: str = field(default="")

    @property
    def card(self) -> Card:
        return self.initialization.card

    @property
    def id(self) -> str:
        return self.initialization.id


@dataclass(frozen=True)
class BrokenCard:
    """A card that is left out, and why. Example: BrokenCard("runs/a", (1, 2), "tasks: should be a list")"""

    folder: str
    stamp: Stamp
    reason: str


class InitializationIndex:
    """Finds and lists; asks the storage at most every two seconds."""

    def __init__(self, storage: str, cache: Path):
        self.base = Storage(storage_root(storage))
        self._filesystem = fs.LocalFileSystem() if self.base.local else fs.FileSystem.from_uri(self.base.base)[0]
        self._cache = cache
        self._entries: dict[str, IndexEntry] = {}  # by folder
        self.broken: dict[str, BrokenCard] = {}
        self.by_id: dict[str, IndexEntry] = {}
        self.newest_first: list[IndexEntry] = []
        self._looked = float("-inf")
        self._lock = threading.Lock()
        self._verified: dict[str, tuple[int, ...]] = {}  # by folder: the file that was read whole

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._looked > REFRESH_SECONDS

    def refresh(self, force: bool = False) -> None:
        """Take over what has changed; of several callers one looks, the others wait for it."""
        with self._lock:
            if not force and not self.is_stale:
                return
            stamps = dict(self._stamps())
            gone = (self._entries.keys() | self.broken.keys()) - stamps.keys()
            changed = bool(gone)
            for folder in gone:
                self._entries.pop(folder, None)
                self.broken.pop(folder, None)
                self._verified.pop(folder, None)
            for folder, stamp in stamps.items():
                known = self._entries.get(folder) or self.broken.get(folder)
                if known is None or known.stamp != stamp:
                    changed = True
                    self._read(folder, stamp)
            if changed:
                found = {entry.id: entry for entry in self._entries.values()}
                self.newest_first = sorted(found.values(), key=lambda e: (e.card.created, e.id), reverse=True)
                self.by_id = found
            self._looked = time.monotonic()

    def open(self, entry: IndexEntry, name: str = PHI) -> int:
        """A descriptor of one of the three files, verified against the card when it holds the weights."""
        if name not in (PHI, README, CARD):
            raise HttpProblem(404, f"An initialization has no file of this name; it has {PHI}, {README} and {CARD}.")
        try:
            file = self._open_beneath(entry, name)
        except FileNotFoundError:
            raise HttpProblem(404, f"{name} of initialization {entry.id} is missing.") from None
        try:
            if name == PHI:
                self._verify(entry, file)
        except BaseException:
            os.close(file)
            raise
        return file

    def _open_beneath(self, entry: IndexEntry, name: str) -> int:
        if self.base.local:
            return open_regular(self.base.root, "/".join(part for part in (entry.folder, name) if part))
        kept = self._cache / entry.commit  # a copy of a remote file, made once
        if not (kept / name).exists():
            Storage(kept).write(name, entry.initialization.storage.read(name))
        return open_regular(kept, name)

    def _verify(self, entry: IndexEntry, file: int) -> None:
        info = os.fstat(file)
        stamp = info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size
        if self._verified.get(entry.folder) == stamp:
            return
        with open(os.dup(file), "rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != entry.card.sha256:
            log.error("the weights of %s in %s do not match their card", entry.id, entry.folder)
            raise HttpProblem(503, f"The weights of {entry.id} are damaged in the storage: their checksum differs.")
        self._verified[entry.folder] = stamp

    def _stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Every folder that holds a card, with its card's time and size."""
        paths = {
            "/".join(part for part in (self.base.root, folder, CARD) if part): folder
            for folder in initialization_folders(self.base)
        }
        for info in self._filesystem.get_file_info(list(paths)) if paths else []:
            if info.type == fs.FileType.File:
                yield paths[info.path], (info.mtime_ns or 0, info.size)

    def _read(self, folder: str, stamp: Stamp) -> None:
        self._entries.pop(folder, None)
        self.broken.pop(folder, None)
        place = self.base.inside(folder) if folder else self.base
        try:
            data = self._card_bytes(folder)
            self._entries[folder] = build_entry(
                Initialization(place, read_contract(Card, data, f"{folder}/{CARD}")), folder, stamp
            )
        except Exception as error:  # one damaged card, however damaged, must not hide the others
            reason = one_line(error, 300).removeprefix(f"{folder}/{CARD} is damaged: ")
            log.warning("left out: %s/%s: %s", folder, CARD, reason)
            self.broken[folder] = BrokenCard(folder, stamp, reason)

    def _card_bytes(self, folder: str) -> bytes:
        name = "/".join(part for part in (folder, CARD) if part)
        if not self.base.local:
            return self.base.read(name)
        try:
            file = open_regular(self.base.root, name)
        except FileNotFoundError:
            raise ValueError("it is a link, or no plain file") from None
        with contextlib.closing(open(file, "rb")) as content:
            data = content.read(CARD_LIMIT + 1)
        if len(data) > CARD_LIMIT:
            raise ValueError(f"it has more than {CARD_LIMIT} bytes")
        return data


def build_entry(initialization: Initialization, folder: str, stamp: Stamp) -> IndexEntry:
    card = {"object": "initialization", **initialization.card.to_json()}
    short = {key: value for key, value in card["metrics"].items() if not isinstance(value, list)}
    search = [initialization.id, initialization.card.model.name, initialization.card.method.name, *card["tasks"]]
    document = json.dumps(card, allow_nan=False).encode()
    return IndexEntry(
        initialization,
        folder,
        stamp,
        json.dumps({**card, "metrics": short}, allow_nan=False).encode(),
        document,
        " ".join(str(word) for word in search).lower(),
        # The hub's clients want a commit: the hash of all that the card says, which includes the weights' checksum.
        hashlib.sha256(document).hexdigest()[:40],
    )
