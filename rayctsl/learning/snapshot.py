"""Snapshots: the complete state of a run at one inner step, written so that a kill at any moment loses nothing.

A snapshot is a folder `step-00001500/` with one safetensors file for the meta-learner, one per task, and a manifest
with their checksums. The manifest is written last: without it, or when a checksum differs, the snapshot does not count
and the one before it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rayctsl.contract import Contract, JsonObject, read_contract
from rayctsl.learning.lease import Epoch, Lease
from rayctsl.storage import Storage

MANIFEST = "manifest.json"
OLD_LAYOUT = "contiguous_weights"  # a fact of snapshots of version 1: see `old_snapshots.py`


class SnapshotManifest(Contract):
    """What a snapshot consists of, as its `manifest.json`.

    Example: SnapshotManifest(step=500, sha256={"meta": "9f2c…", "task-svhn": "03ab…"}, facts={"packing": {…}})
    """

    CURRENT: ClassVar[int] = 2

    step: int
    sha256: dict[str, str]
    """Of each file, by its name without the ending."""
    facts: JsonObject
    """What the engine wants back."""

    @classmethod
    def upgrade(cls, raw: JsonObject) -> JsonObject:
        return {**raw, "facts": {**raw["facts"], OLD_LAYOUT: True}}


TaskState = dict[str, Tensor]


class TaskFiles(Mapping[str, TaskState]):
    """The tasks' states of a snapshot, each read when it is asked for: a run may have more tasks than fit in memory."""

    def __init__(self, folder: str, sha256: Mapping[str, str]):
        self.folder, self.sha256 = folder, dict(sha256)  # the folder's address; checksums by task

    def __getitem__(self, name: str) -> TaskState:
        return load(_read_checked(Storage(self.folder), f"task-{name}", self.sha256[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.sha256)

    def __len__(self) -> int:
        return len(self.sha256)

    def only(self, names: Iterable[str]) -> TaskFiles:
        return TaskFiles(self.folder, {name: self.sha256[name] for name in names})


@dataclass
class RunState:
    """Everything needed to continue a run after inner step number `step`.

    Example: RunState(step=500, meta={"phi": ...}, tasks={"svhn": {"theta": ..., "head": ...}}, facts={"packing": ...})
    """

    step: int
    meta: TaskState
    tasks: Mapping[str, TaskState]
    facts: JsonObject = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    """Checksums of tasks whose files are in the snapshot's folder already: their learners wrote them."""


def write_task_files(folder: Storage, states: Mapping[str, TaskState]) -> dict[str, str]:
    """Write tasks' files into a snapshot's folder; returns their checksums."""
    return {name: _write_file(folder, f"task-{name}", tensors) for name, tensors in states.items()}


def write_snapshot(storage: Storage, state: RunState, keep: int = 3, lease: Lease | None = None) -> str:
    """Write one snapshot and delete all whole ones but the newest `keep`; returns its folder's name."""
    folder = snapshot_folder(state.step, lease)
    inside = storage.inside(folder)
    tasks = {**state.written, **write_task_files(inside, state.tasks)}
    checksums = {"meta": _write_file(inside, "meta", state.meta), **{f"task-{n}": sha for n, sha in tasks.items()}}
    manifest = SnapshotManifest(step=state.step, sha256=checksums, facts=state.facts)
    if lease is not None:
        lease.check()
    inside.write(MANIFEST, manifest.to_bytes())
    _delete_older(storage, folder, keep, lease.epoch if lease else None)
    return folder


def _delete_older(storage: Storage, written: str, keep: int, epoch: Epoch | None) -> None:
    """Delete what does not count, and of what does all up to the one just written but the newest `keep` whole ones.

    A newer one stays until the run gets there: learners may be writing it. Nor does it take the place of one that is
    whole, for it may be what a killed driver left, or damaged.
    """
    existing = snapshot_folders(storage)  # listed first: what learners begin in between is not among them
    counting = accepted_folders(storage, epoch)
    newer = {name for name in counting if name > written}
    whole = [name for name in counting if name <= written and storage.exists(f"{name}/{MANIFEST}")]
    for old in set(existing) - newer - set(whole[-keep:]):
        storage.delete_folder(old)


def snapshot_folder(step: int, lease: Lease | None = None) -> str:
    """The name of the folder for a snapshot at this step."""
    return _folder_name(step, lease.epoch.number if lease else 1)


def _write_file(folder: Storage, name: str, tensors: TaskState) -> str:
    data = save({key: value.contiguous() for key, value in tensors.items()})
    folder.write(f"{name}.safetensors", data)
    return hashlib.sha256(data).hexdigest()


def _read_checked(folder: Storage, name: str, checksum: str) -> bytes:
    data = folder.read(f"{name}.safetensors")
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{name}.safetensors is damaged")
    return data


def _folder_name(step: int, epoch: int) -> str:
    """Example: step-000001500 in the first epoch, step-000001500-000002 in the second"""
    return f"step-{step:09d}" + (f"-{epoch:06d}" if epoch > 1 else "")


def step_of(folder: str) -> int:
    """The inner step of a snapshot's folder."""
    return int(folder.split("-")[1])


def accepted_folders(storage: Storage, epoch: Epoch | None) -> list[str]:
    """Snapshot folders that count, oldest first: of the epoch, and what it has taken over; without one, all."""
    folders = snapshot_folders(storage)
    if epoch is None:
        return folders
    return [f for f in folders if f in epoch.inherited or f == _folder_name(step_of(f), epoch.number)]


def snapshot_folders(storage: Storage) -> list[str]:
    """Snapshot folders, oldest first, complete or not."""
    return [name for name in storage.names() if name.startswith("step-")]


def read_snapshot(storage: Storage, folder: str) -> RunState:
    """Verify one snapshot and read it, its tasks when they are asked for; ValueError says what is wrong with it."""
    inside = storage.inside(folder)
    try:
        manifest = read_contract(SnapshotManifest, inside.read(MANIFEST), MANIFEST)
        checksums = dict(manifest.sha256)
        meta = load(_read_checked(inside, "meta", checksums.pop("meta")))
        for name, checksum in checksums.items():
            _read_checked(inside, name, checksum)
    except FileNotFoundError as error:
        raise ValueError(f"snapshot {folder} is incomplete ({error})") from None
    except (ValueError, KeyError, SafetensorError) as error:
        raise ValueError(f"snapshot {folder} cannot be used: {error}") from None
    tasks = {name.removeprefix("task-"): checksum for name, checksum in checksums.items()}
    return RunState(manifest.step, meta, TaskFiles(str(inside), tasks), manifest.facts)


def latest_snapshot(storage: Storage, epoch: Epoch | None = None) -> tuple[RunState | None, list[str]]:
    """The newest snapshot that is whole and counts, and a sentence for every newer one that is not whole."""
    complaints: list[str] = []
    for folder in reversed(accepted_folders(storage, epoch)):
        try:
            return read_snapshot(storage, folder), complaints
        except ValueError as error:
            complaints.append(str(error))
    return None, complaints
