"""The initializations of a storage, kept in memory: cards are read again only when their files change.

`registry` knows how an initialization is laid out; here is what a thousand of them need to be listed in microseconds.
"""

from __future__ import annotations

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
from rayctsl.registry import Initialization, initialization_folders, open_initialization, storage_root
from rayctsl.storage import Storage
from rayctsl.words import one_line
from serve.problems import HttpProblem, log

REFRESH_SECONDS = 2.0
Stamp = tuple[int, int]  # modification time and size


@dataclass
class IndexEntry:
    """An initialization with its JSON ready to be sent."""

    initialization: Initialization
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


class InitializationIndex:
    """Finds and lists; asks the storage at most every two seconds."""

    def __init__(self, storage: str, cache: Path):
        self.base = Storage(storage_root(storage))
        self._filesystem = fs.LocalFileSystem() if self.base.local else fs.FileSystem.from_uri(self.base.base)[0]
        self._cache = cache
        self._entries: dict[str, IndexEntry] = {}  # by the card's path
        self.by_id: dict[str, IndexEntry] = {}
        self.newest_first: list[IndexEntry] = []
        self._bad: dict[str, Stamp] = {}
        self._looked = float("-inf")
        self._lock = threading.Lock()
        self._verified: dict[str, Stamp] = {}

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._looked > REFRESH_SECONDS

    def refresh(self, force: bool = False) -> None:
        """Take over what has changed; of several callers one looks, the others wait for it."""
        with self._lock:
            if not force and not self.is_stale:
                return
            paths = list(self._candidates())
            infos = self._filesystem.get_file_info(paths) if paths else []
            stamps = {i.path: (i.mtime_ns or 0, i.size) for i in infos if i.type == fs.FileType.File}
            changed = False
            for path in self._entries.keys() - stamps.keys():
                del self._entries[path]
                changed = True
            for path, stamp in stamps.items():
                known = self._entries.get(path)
                if (known is None or known.stamp != stamp) and self._bad.get(path) != stamp:
                    changed = True
                    self._read(path, stamp)
            if changed:
                found = {entry.id: entry for entry in self._entries.values()}
                self.newest_first = sorted(found.values(), key=lambda e: (e.card.created, e.id), reverse=True)
                self.by_id = found
            self._looked = time.monotonic()

    def file(self, entry: IndexEntry, name: str = PHI) -> Path:
        """A local path of one of the three files, verified against the card when it holds the weights."""
        if name not in (PHI, README, CARD):
            raise HttpProblem(404, f"An initialization has no file of this name; it has {PHI}, {README} and {CARD}.")
        path = Path(entry.initialization.storage.root) / name
        if not self.base.local:
            path = self._fetch(entry, name)
        try:
            info = os.stat(path)
        except FileNotFoundError:
            raise HttpProblem(404, f"{name} of initialization {entry.id} is missing.") from None
        stamp = (info.st_mtime_ns, info.st_size)
        if name == PHI and self._verified.get(str(path)) != stamp:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry.card.sha256:
                    log.error("%s does not match its card", path)
                    raise HttpProblem(
                        503, f"The weights of {entry.id} are damaged in the storage: their checksum differs."
                    )
            self._verified[str(path)] = stamp
        return path

    def _fetch(self, entry: IndexEntry, name: str) -> Path:
        """A copy of a remote file, made once."""
        target = self._cache / entry.commit / name
        if not target.exists():
            data = entry.initialization.storage.read(name)
            Storage(self._cache / entry.commit).write(name, data)
        return target

    def _candidates(self) -> Iterator[str]:
        for folder in initialization_folders(self.base):
            yield "/".join(part for part in (self.base.root, folder, CARD) if part)

    def _read(self, path: str, stamp: Stamp) -> None:
        inside = path.removesuffix(CARD).removeprefix(self.base.root).strip("/")
        place = self.base.inside(inside) if inside else self.base
        try:
            initialization = open_initialization(str(place))
            entry = build_entry(initialization, stamp)
        except (ValueError, OSError) as error:
            # One damaged card must not hide the others.
            log.warning("left out: %s", one_line(error))
            self._entries.pop(path, None)
            self._bad[path] = stamp
            return
        self._bad.pop(path, None)
        self._entries[path] = entry


def build_entry(initialization: Initialization, stamp: Stamp) -> IndexEntry:
    card = {"object": "initialization", **initialization.card.to_json()}
    short = {key: value for key, value in card["metrics"].items() if not isinstance(value, list)}
    search = [initialization.id, initialization.card.model.name, initialization.card.method.name, *card["tasks"]]
    document = json.dumps(card).encode()
    return IndexEntry(
        initialization,
        stamp,
        json.dumps({**card, "metrics": short}).encode(),
        document,
        " ".join(str(word) for word in search).lower(),
        # The hub's clients want a commit: the hash of all that the card says, which includes the weights' checksum.
        hashlib.sha256(document).hexdigest()[:40],
    )
