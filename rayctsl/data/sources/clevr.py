"""CLEVR: a zip of rendered scenes, images/<split>/… and scenes/CLEVR_<split>_scenes.json; VTAB makes two tasks of it.

`clevr_count`: how many objects there are, 3 to 10. `clevr_distance`: how far the nearest is, in six ranges of the
scene's depth. The publisher's test scenes have no labels, so its validation scenes are the test split.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rayctsl.data.entries import Entry
from rayctsl.data.raw import Listing, Picture, RawDataset
from rayctsl.data.sources.archives import members

FOLDER = "CLEVR_v1.0"
SPLITS = {"train": "train", "val": "test"}  # the publisher's word -> ours
EDGES = (8.0, 8.5, 9.0, 9.5, 10.0)

Objects = list[dict[str, Any]]
TASKS: dict[str, tuple[tuple[str, ...], Callable[[Objects], int]]] = {  # class names, objects -> label
    "clevr_count": (tuple(str(count) for count in range(3, 11)), lambda objects: len(objects) - 3),
    "clevr_distance": (
        ("up to 8", "up to 8.5", "up to 9", "up to 9.5", "up to 10", "beyond 10"),
        lambda objects: bisect.bisect_left(EDGES, min(float(thing["pixel_coords"][2]) for thing in objects)),
    ),
}


def read(entry: Entry, folder: Path, scratch: Path) -> RawDataset:
    archive = folder / entry.files[0].name
    class_names, label_of = TASKS[entry.name]
    listing = Listing()
    for word, scenes in _scenes(archive, scratch).items():
        for scene in scenes:
            name = f"{FOLDER}/images/{word}/{scene['image_filename']}"
            listing.add(SPLITS[word], name, label_of(scene["objects"]))
    return listing.dataset(class_names, _pictures(archive, listing))


def _scenes(archive: Path, scratch: Path) -> dict[str, list[dict[str, Any]]]:
    """The lists of scenes; they are too long for one read into memory, so they go through a file."""
    wanted = {f"{FOLDER}/scenes/CLEVR_{word}_scenes.json": word for word in SPLITS}
    found = {}
    for member in members(archive):
        if member.name in wanted:
            member.write(scratch / member.name)
            found[wanted[member.name]] = json.loads((scratch / member.name).read_bytes())["scenes"]
    if missing := [name for name, word in wanted.items() if word not in found]:
        raise ValueError(f"{archive} has no {missing[0]}")
    return {word: found[word] for word in SPLITS}


def _pictures(archive: Path, listing: Listing) -> Iterator[Picture]:
    for member in members(archive):
        if member.name in listing:
            yield listing.pick(member.name, member.read())
