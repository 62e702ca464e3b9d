"""Snapshots: the complete state of a run at one inner step, written so that a kill at any moment loses nothing.

A snapshot is a folder `step-00001500/` with one safetensors file for the meta-learner, one per task, and a manifest
with their checksums. The manifest is written last: without it, or when a checksum differs, the snapshot does not count
and the one before it is used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rayctsl.contract import Contract, JsonObject, read_contract
from rayctsl.learning.lease import Epoch, Lease
from rayctsl.storage import Storage

MANIFEST = "manifest.json"


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
        raise ValueError("its weights lie in the order of an older rayctsl, which has to finish the run")


@dataclass
class RunState:
    """Everything needed to continue a run after inner step number `step`.

    Example: RunState(step=500, meta={"phi": ...}, tasks={"svhn": {"theta": ..., "head": ...}}, facts={"packing": ...})
    """

    step: int
    meta: dict[str, Tensor]
    tasks: dict[str, dict[str, Tensor]]
    facts: JsonObject = field(default_factory=dict)


def write_snapshot(storage: Storage, state: RunState, keep: int = 3, lease: Lease | None = None) -> str:
    """Write one snapshot and delete all but the newest `keep`; returns its folder's name."""
    folder = _folder_name(state.step, lease.epoch.number if lease else 1)
    checksums = {}
    for name, tensors in {"meta": state.meta, **{f"task-{n}": t for n, t in state.tasks.items()}}.items():
        data = save({key: value.contiguous() for key, value in tensors.items()})
        storage.write(f"{folder}/{name}.safetensors", data)
        checksums[name] = hashlib.sha256(data).hexdigest()
    manifest = SnapshotManifest(step=state.step, sha256=checksums, facts=state.facts)
    if lease is not None:
        lease.check()
    storage.write(f"{folder}/{MANIFEST}", manifest.to_bytes())
    counting = accepted_folders(storage, lease.epoch if lease else None)
    for old in set(snapshot_folders(storage)) - set(counting[-keep:]):
        storage.delete_folder(old)
    return folder


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
    """Read and verify one snapshot; ValueError says what is wrong with it."""
    try:
        manifest = read_contract(SnapshotManifest, storage.read(f"{folder}/{MANIFEST}"), MANIFEST)
        files: dict[str, dict[str, Tensor]] = {}
        for name, checksum in manifest.sha256.items():
            data = storage.read(f"{folder}/{name}.safetensors")
            if hashlib.sha256(data).hexdigest() != checksum:
                raise ValueError(f"{name}.safetensors is damaged")
            files[name] = load(data)
    except FileNotFoundError as error:
        raise ValueError(f"snapshot {folder} is incomplete ({error})") from None
    except (ValueError, SafetensorError) as error:
        raise ValueError(f"snapshot {folder} cannot be used: {error}") from None
    meta = files.pop("meta")
    tasks = {name.removeprefix("task-"): tensors for name, tensors in files.items()}
    return RunState(manifest.step, meta, tasks, manifest.facts)


def latest_snapshot(storage: Storage, epoch: Epoch | None = None) -> tuple[RunState | None, list[str]]:
    """The newest snapshot that is whole and counts, and a sentence for every newer one that is not whole."""
    complaints: list[str] = []
    for folder in reversed(accepted_folders(storage, epoch)):
        try:
            return read_snapshot(storage, folder), complaints
        except ValueError as error:
            complaints.append(str(error))
    return None, complaints
