"""A run folder's snapshot writer: what is lost on its way is left out, what cannot be written is said."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
import torch

from rayctsl.config import build_config
from rayctsl.futures import finished
from rayctsl.learning.engine import EngineFault
from rayctsl.learning.lease import InUse, Lease, is_claimed
from rayctsl.learning.run_folder import NotWritten, RunFolder, SnapshotWriter
from rayctsl.learning.snapshot import RunState, snapshot_folders
from rayctsl.storage import Storage


def state(step: int) -> RunState:
    return RunState(step, {"phi": torch.arange(3.0)}, {"a": {"theta": torch.zeros(3)}})


def failed(error: BaseException) -> Future[RunState]:
    future: Future[RunState] = Future()
    future.set_exception(error)
    return future


def test_a_state_that_is_lost_with_its_learner_is_left_out(tmp_path):
    writer = SnapshotWriter(Storage(tmp_path), keep=3)
    writer.write(failed(EngineFault("a snapshot was lost: a process died")))
    writer.write(finished(state(20)))
    writer.close()
    assert writer.newest == 20
    assert snapshot_folders(Storage(tmp_path)) == ["step-000000020"]


def test_a_learner_that_cannot_write_its_files_stops_the_run(tmp_path):
    """A full disk, say: the run would otherwise go on to its end without a snapshot."""
    writer = SnapshotWriter(Storage(tmp_path), keep=3)
    writer.write(failed(OSError(28, "No space left on device")))
    writer._queue.put(finished(state(20)))  # handed in before anyone had noticed
    with pytest.raises(NotWritten, match=r"a snapshot could not be written: .*No space left on device"):
        writer.close()
    assert snapshot_folders(Storage(tmp_path)) == []


def test_a_folder_that_could_not_be_taken_is_free_for_the_next(tmp_path):
    folder = RunFolder.open(str(tmp_path / "run"), build_config({"data": {"tasks": ["latin"]}}))
    folder.claim().release()
    (tmp_path / "run/checkpoints/step-none").mkdir()  # which is no snapshot of ours
    with pytest.raises(ValueError, match="none"):
        folder.claim()
    assert not is_claimed(folder.storage.inside("checkpoints/lease"))


def test_a_restart_forgets_the_snapshots_and_keeps_the_config(tmp_path):
    folder = RunFolder.open(str(tmp_path / "run"), build_config({"data": {"tasks": ["latin"]}, "seed": 3}))
    writer = folder.snapshot_writer(keep=3)
    writer.write(finished(state(20)))
    writer.close()
    again = RunFolder.open(str(tmp_path / "run"), resume="must")
    assert again.has_snapshots
    again.restart()
    assert (again.has_snapshots, again.restore(), again.config.seed) == (False, None, 3)
    assert RunFolder.exists(str(tmp_path / "run"))


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_restart_of_a_run_that_is_going_on_is_refused_and_deletes_nothing(place, tmp_path, request):
    local = place == "local"
    address = str(tmp_path / "run") if local else request.getfixturevalue("object_store").format("going-on")
    folder = RunFolder.open(address, build_config({"data": {"tasks": ["latin"]}}))
    checkpoints = folder.storage.inside("checkpoints")
    with Lease(checkpoints.inside("lease"), "the run", refresh=0.05, limit=30.0) as lease:
        writer = folder.snapshot_writer(keep=3, lease=lease)
        writer.write(finished(state(20)))
        writer.close()
        held = checkpoints.inside("lease").names()
        with pytest.raises(InUse, match=r"the run in .* is being written by process"):
            RunFolder.open(address, resume="must").restart()
        assert snapshot_folders(checkpoints) == ["step-000000020"]
        assert checkpoints.inside("lease").names() == held
    RunFolder.open(address, resume="must").restart()
    assert checkpoints.names() == ["lease"]
    assert checkpoints.inside("lease").names() == ["epoch-000001.json", "epoch-000002.json"]  # free for the run


def test_what_a_writer_of_before_a_restart_still_writes_never_counts(tmp_path):
    folder = RunFolder.open(str(tmp_path / "run"), build_config({"data": {"tasks": ["latin"]}}))
    before = Lease(folder.storage.inside("checkpoints/lease"), "the run", refresh=60, limit=60).take()
    before.begin_epoch()
    before.storage.delete(f"claim-{before._owner}.json")  # as after a long silence
    folder.restart()
    writer = folder.snapshot_writer(keep=3, lease=before)
    writer.write(finished(state(20)))  # it has not noticed yet
    writer.close()
    assert folder.has_snapshots
    lease = folder.claim()
    assert folder.restore(lease) is None
    for each in (before, lease):
        each.release()
