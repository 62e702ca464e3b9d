"""Snapshots: complete, verified, bounded in number, and the previous one when the newest is damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rayctsl.learning.snapshot import (
    RunState,
    latest_snapshot,
    read_snapshot,
    snapshot_folder,
    snapshot_folders,
    write_snapshot,
    write_task_files,
)
from rayctsl.storage import Storage


def state(step: int) -> RunState:
    meta = {"phi": torch.arange(5.0) + step, "optimizer.momentum": torch.ones(5)}
    tasks = {"a": {"theta": torch.full((5,), float(step)), "counts": torch.tensor([step, 0, 0])}}
    return RunState(step, meta, tasks, {"packing": {"learners": [["a"]], "expected": 1.0}})


def test_round_trip_and_only_the_newest_are_kept(tmp_path):
    storage = Storage(tmp_path)
    for step in (10, 20, 30, 40):
        write_snapshot(storage, state(step), keep=2)
    assert snapshot_folders(storage) == ["step-000000030", "step-000000040"]
    read, complaints = latest_snapshot(storage)
    assert complaints == []
    assert read is not None
    assert (read.step, read.facts) == (40, state(40).facts)
    assert torch.equal(read.meta["phi"], state(40).meta["phi"])
    assert torch.equal(read.tasks["a"]["counts"], torch.tensor([40, 0, 0]))


@pytest.mark.parametrize("keep", [1, 3])
def test_unfinished_snapshots_displace_no_whole_one(tmp_path, keep):
    """As after drivers that were killed while they wrote the next one, and a stop before the run was there again."""
    storage, unfinished = Storage(tmp_path), ["step-000001000", "step-000001000-000002", "step-000001000-000003"]
    write_snapshot(storage, state(500), keep)
    for folder in unfinished:
        write_task_files(storage.inside(folder), state(1000).tasks)
    write_snapshot(storage, state(700), keep)
    assert snapshot_folders(storage) == ["step-000000500", "step-000000700"][-keep:] + unfinished
    read, complaints = latest_snapshot(storage)
    assert read is not None
    assert (read.step, len(complaints)) == (700, 3)


def test_an_unfinished_snapshot_goes_with_the_next_whole_one_of_its_step_or_later(tmp_path):
    storage = Storage(tmp_path)
    for step in (10, 20, 30):
        write_task_files(storage.inside(f"step-{step:09d}"), state(step).tasks)
    write_snapshot(storage, state(20), keep=3)
    assert snapshot_folders(storage) == ["step-000000020", "step-000000030"]  # learners may be writing the last one
    write_snapshot(storage, state(40), keep=3)
    assert snapshot_folders(storage) == ["step-000000020", "step-000000040"]


def test_a_damaged_newer_snapshot_displaces_no_whole_one(tmp_path):
    """It has a manifest, and the run went on from the one before it."""
    storage = Storage(tmp_path)
    for step in (10, 20):
        write_snapshot(storage, state(step), keep=2)
    truncate(tmp_path / "step-000000020")
    write_snapshot(storage, state(15), keep=1)
    read, _ = latest_snapshot(storage)
    assert read is not None
    assert read.step == 15


def test_what_learners_have_written_themselves_is_part_of_it(tmp_path):
    storage, whole = Storage(tmp_path), state(10)
    written = write_task_files(storage.inside(snapshot_folder(10)), whole.tasks)
    write_snapshot(storage, replace(whole, tasks={}, written=written))
    read, _ = latest_snapshot(storage)
    assert read is not None
    assert torch.equal(read.tasks["a"]["theta"], whole.tasks["a"]["theta"])


def truncate(folder: Path) -> None:
    path = folder / "task-a.safetensors"
    path.write_bytes(path.read_bytes()[:-3])


def alter(folder: Path) -> None:
    path = folder / "meta.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def lose_a_file(folder: Path) -> None:
    (folder / "task-a.safetensors").unlink()


def lose_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def cut_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"version": 1, "st')


def come_from_the_future(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))


@pytest.mark.parametrize(
    "damage", [truncate, alter, lose_a_file, lose_the_manifest, cut_the_manifest, come_from_the_future]
)
def test_a_damaged_snapshot_is_named_and_the_previous_one_used(tmp_path, damage):
    storage = Storage(tmp_path)
    write_snapshot(storage, state(10))
    write_snapshot(storage, state(20))
    damage(tmp_path / "step-000000020")
    read, complaints = latest_snapshot(storage)
    assert read is not None
    assert read.step == 10
    assert len(complaints) == 1
    assert "step-000000020" in complaints[0]
    with pytest.raises(ValueError, match="step-000000020"):
        read_snapshot(storage, "step-000000020")


def test_nothing_to_read(tmp_path):
    assert latest_snapshot(Storage(tmp_path / "none")) == (None, [])
