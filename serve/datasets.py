"""The datasets that a job may name: what the data root holds, the embedded ones, and the catalog's unprepared ones."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath

import numpy as np
from PIL import Image

from rayctsl.data.catalog import CATALOG, closest_name
from rayctsl.data.embedded import EMBEDDED
from rayctsl.data.local_root import Description
from rayctsl.data.names import MARK, shown_name
from rayctsl.data.roots import data_root, open_root
from rayctsl.data.store import open_split
from rayctsl.words import one_line
from serve.problems import HttpProblem, log
from serve.schemas import DatasetDocument

REFRESH_SECONDS = 5.0
AGAIN_SECONDS = 1.0  # between looks for names that are missing
THUMBNAILS = 10


def stored_name(name: str, owner: str | None) -> str:
    """Example: stored_name("flowers", None) == "flowers"; with keys, every owner has names of their own."""
    return f"{name}{MARK}{hashlib.sha256(owner.encode()).hexdigest()[:8]}" if owner else name


def is_private(stored: str) -> bool:
    return MARK in stored


def is_visible(stored: str, owner: str | None) -> bool:
    """Everybody's datasets, and the owner's own."""
    return not is_private(stored) or stored == stored_name(shown_name(stored), owner)


def list_visible(names: Iterable[str], owner: str | None) -> list[str]:
    """What an owner sees, each name once: it stands for their own dataset before everybody's."""
    visible = [name for name in names if is_visible(name, owner)]
    own = {shown_name(name) for name in visible if is_private(name)}
    return [name for name in visible if name not in own]


def unknown_dataset(name: str) -> HttpProblem:
    return HttpProblem(404, f"Dataset '{name}' is unknown; GET /datasets lists all.", "unknown-dataset")


class DatasetCatalog:
    """A data root's datasets by name, looked up again every few seconds."""

    def __init__(self, root: str | None):
        self._root = data_root(root)
        self._lock = threading.Lock()
        self._looked = self._missed = float("-inf")
        self._datasets: dict[str, DatasetDocument] = {}
        self._thumbnails: dict[str, tuple[int, bytes]] = {}  # with the time of the file

    def all(self, wanted: str | None = None) -> dict[str, DatasetDocument]:
        """What was seen a few seconds ago; looks again for one that is wanted and missing: others may have made it."""
        with self._lock:
            old = time.monotonic() - self._looked > REFRESH_SECONDS
            if not old and wanted is not None and wanted not in self._datasets:
                old = time.monotonic() - self._missed > AGAIN_SECONDS  # a misspelt name is no look at each request
                self._missed = time.monotonic() if old else self._missed
            if old:
                self._datasets = self._look()
                self._thumbnails = {name: kept for name, kept in self._thumbnails.items() if name in self._datasets}
                self._looked = time.monotonic()
            return self._datasets

    def look_again(self) -> None:
        """At the next question: something has changed."""
        with self._lock:
            self._looked = float("-inf")

    def ready(self) -> list[str]:
        """Everybody's."""
        return [name for name, dataset in self.all().items() if dataset.prepared and not is_private(name)]

    def require(self, name: str) -> DatasetDocument:
        """The dataset of a stored name, or the problem with it."""
        known = self.all(wanted=name)
        if name not in known and is_private(name):
            raise unknown_dataset(shown_name(name))
        if name not in known:
            guess = closest_name(name, [each for each in known if not is_private(each)])
            hint = f"did you mean '{guess}'?" if guess else "GET /datasets lists all."
            raise HttpProblem(404, f"Dataset '{name}' is unknown; {hint}", "unknown-dataset")
        if not known[name].prepared:
            detail = f"Dataset '{name}' is known but not prepared: run python -m rayctsl.data prepare {name}"
            raise HttpProblem(409, detail, "dataset-not-prepared")
        return known[name]

    def is_taken(self, name: str) -> bool:
        """Whether there is one of this name at this moment, whatever was seen a few seconds ago."""
        if name in CATALOG or name in EMBEDDED:
            return True
        try:
            place = open_root(self._root)
            if name not in place.names():
                return False
            place.describe(name)
        except (ValueError, OSError):  # damaged, or the root does not answer
            return name in self.all()
        return True

    def thumbnail(self, name: str) -> bytes | None:
        """A picture of the first classes; only of what lies prepared on a local disk: nothing is made for it."""
        self.require(name)
        file = FilePath(self._root) / name / "train.arrow"
        if "://" in self._root or not file.is_file():
            return None
        stamp, kept = file.stat().st_mtime_ns, self._thumbnails.get(name)
        if kept is None or kept[0] != stamp:  # drawn before, but perhaps of another dataset
            kept = self._thumbnails[name] = stamp, _draw(file)
        return kept[1]

    def _prepared(self) -> Iterator[tuple[str, Description]]:
        """What the data root holds; one that is damaged, or gone since its name was read, hides no other."""
        try:
            place = open_root(self._root)
            names = place.names()
        except (ValueError, OSError) as error:
            log.warning("data root: %s", one_line(error))
            return
        for name in names:
            try:
                yield name, place.describe(name)
            except (ValueError, OSError) as error:
                log.warning("dataset %s is left out: %s", name, one_line(error))

    def _look(self) -> dict[str, DatasetDocument]:
        found: dict[str, DatasetDocument] = {}
        for name, entry in CATALOG.items():
            shape = (entry.size, entry.size, entry.channels)
            found[name] = _describe(name, False, "catalog", entry.num_classes, entry.num_train, entry.num_test, shape)
        for name, made in EMBEDDED.items():
            # Made in a moment by whoever needs it first, so always ready.
            found[name] = _describe(name, True, "embedded", made.num_classes, made.num_train, made.num_test, made.shape)
        for name, (train, test, _) in self._prepared():
            origin = found[name].source if name in found else "imported"
            found[name] = _describe(name, True, origin, train.num_classes, train.count, test.count, train.shape)
        return dict(sorted(found.items(), key=lambda item: (not item[1].prepared, item[0])))


def _draw(file: FilePath) -> bytes:
    split = open_split(file)
    firsts = [int(np.argmax(split.labels == label)) for label in range(min(THUMBNAILS, split.info.num_classes))]
    strip = np.concatenate(list(split.images(np.array(firsts))), axis=1)
    picture = Image.fromarray(strip[..., 0] if strip.shape[2] == 1 else strip)
    sink = io.BytesIO()
    picture.resize((picture.width * 56 // picture.height, 56), Image.Resampling.BILINEAR).save(sink, "PNG")
    return sink.getvalue()


def _describe(
    name: str,
    prepared: bool,
    source: str,
    num_classes: int,
    num_train: int | None,
    num_test: int,
    shape: tuple[int, int, int],
) -> DatasetDocument:
    height, width, channels = shape
    return DatasetDocument(
        name=name,
        prepared=prepared,
        source=source,
        num_classes=num_classes,
        num_train=num_train,
        num_test=num_test,
        height=height,
        width=width,
        channels=channels,
    )
