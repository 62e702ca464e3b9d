"""One writer per folder, on disk and on S3: among many that try, exactly one; and a former one leaves no trace."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from rayctsl.learning.lease import Claim, InUse, Lease, LeaseLost, _is_dead, _where, newest_epoch
from rayctsl.learning.snapshot import RunState, accepted_folders, latest_snapshot, snapshot_folders, write_snapshot
from rayctsl.storage import Storage

QUICK = {"refresh": 0.05, "limit": 30.0}  # quick to see that another lives; slow to believe it dead


@pytest.fixture(params=["local", "s3"])
def new_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Storage]:
    if request.param == "local":
        return lambda name: Storage(tmp_path / name)
    address = request.getfixturevalue("object_store")
    return lambda name: Storage(address.format(name))


def test_a_second_writer_is_refused_until_the_first_is_done(new_storage):
    first, second = (Lease(new_storage("run"), "the run", **QUICK) for _ in range(2))
    with first:
        with pytest.raises(InUse, match=rf"the run is being written by process {os.getpid()} on .*; wait"):
            second.take()
        first.check()
        assert first.epoch.number == 1
    with second:
        assert second.epoch.number == 2


def test_of_many_that_try_at_once_exactly_one_writes(new_storage):
    chance = random.Random(0)
    for attempt in range(3):
        storage, holders = new_storage(f"crowd-{attempt}"), list[int]()
        delays = [chance.uniform(0, 0.05) for _ in range(3)]
        done = threading.Barrier(3, timeout=60)

        def drive(number: int) -> bool:
            lease = Lease(storage, "the run", **QUICK)  # noqa: B023
            time.sleep(delays[number])  # noqa: B023
            try:
                lease.take().begin_epoch()
            except InUse:
                done.wait()  # noqa: B023
                return False
            holders.append(number)  # noqa: B023
            done.wait()  # noqa: B023
            lease.release()
            return True

        with ThreadPoolExecutor(3) as pool:
            assert sorted(pool.map(drive, range(3))) == [False, False, True]
        assert len(holders) == 1
        assert not [name for name in storage.names() if name.startswith("claim-")]


def test_who_sleeps_while_drawing_a_ticket_comes_too_late(tmp_path, monkeypatch):
    """With the ticket of who has taken the lease meanwhile, and a name that comes before."""
    storage = Storage(tmp_path)
    sleeper, quick = (Lease(storage, "the run", **QUICK) for _ in range(2))
    sleeper._owner, sleeper._claim = "0", sleeper._claim.changed(owner="0")
    look = sleeper._others

    def sleep() -> list[Claim]:
        monkeypatch.setattr(sleeper, "_others", look)
        found = look()
        storage.delete("claim-0.json")  # as after a long silence
        quick.take().begin_epoch()
        return found

    monkeypatch.setattr(sleeper, "_others", sleep)
    with pytest.raises(InUse, match="the run has just been taken by another process"), sleeper:
        pass
    assert storage.names() == [f"claim-{quick._owner}.json", "epoch-000001.json"]
    quick.release()


def test_files_that_are_being_written_are_no_claims(tmp_path):
    for name in ("claim-0a1b.json.862c5a09.tmp", "epoch-000007.json.862c5a09.tmp"):
        (tmp_path / name).write_bytes(b"{")
    with Lease(Storage(tmp_path), "the run") as lease:
        assert lease.epoch.number == 1


def test_a_dead_process_of_this_host_is_succeeded_at_once(tmp_path):
    gone = Lease(Storage(tmp_path), "the run", refresh=60, limit=60)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    gone._claim = gone._claim.changed(process=child, ticket=4)
    gone._put(ticket=4)
    started = time.monotonic()
    with Lease(Storage(tmp_path), "the run") as lease:
        assert lease.epoch.number == 5
    assert time.monotonic() - started < 5  # its limit is a minute


def test_a_silent_process_elsewhere_is_succeeded_after_a_while(tmp_path):
    silent = Claim(owner="other", where="elsewhere", process=1, ticket=7, beats=3)
    Storage(tmp_path).write("claim-other.json", silent.to_bytes())
    started = time.monotonic()
    with Lease(Storage(tmp_path), "the run", refresh=0.05, limit=0.5) as lease:
        assert time.monotonic() - started >= 0.5  # not before its limit
        assert lease.epoch.number == 8


def test_a_storage_that_is_away_for_a_moment_costs_no_lease(tmp_path, monkeypatch):
    storage = Storage(tmp_path)
    lease = Lease(storage, "the run", refresh=0.01, limit=60).take()
    write, faults, back = storage.write, [OSError("away"), OSError("still away")], threading.Event()

    def flaky(name: str, data: bytes) -> None:
        if faults:
            raise faults.pop()
        write(name, data)
        back.set()

    monkeypatch.setattr(storage, "write", flaky)
    assert back.wait(60), "its holder shows no life any more"
    lease.release()


def state(step: int) -> RunState:
    return RunState(step, {"phi": torch.arange(3.0) + step}, {"a": {"theta": torch.zeros(3)}})


def test_what_a_former_holder_writes_never_counts(tmp_path):
    snapshots = Storage(tmp_path)

    def take() -> Lease:
        lease = Lease(snapshots.inside("lease"), "the run", refresh=60, limit=1.0).take()
        lease.begin_epoch(tuple(accepted_folders(snapshots, newest_epoch(lease.storage))))
        return lease

    frozen = take()
    write_snapshot(snapshots, state(10), lease=frozen)
    frozen.storage.delete(f"claim-{frozen._owner}.json")  # as after a long silence
    holder = take()
    assert holder.epoch.inherited == ("step-000000010",)
    frozen._confirmed = time.monotonic()  # it has not noticed yet, and gets as far as the manifest
    write_snapshot(snapshots, state(20), lease=frozen)
    write_snapshot(snapshots, state(15), lease=holder)
    assert latest_snapshot(snapshots, holder.epoch)[0].step == 15  # type: ignore[union-attr]
    assert snapshot_folders(snapshots) == ["step-000000010", "step-000000015-000002"]
    frozen._confirmed = time.monotonic() - 0.6  # more than half of the limit: it has to look
    with pytest.raises(LeaseLost, match="another process has taken over the run"):
        write_snapshot(snapshots, state(30), lease=frozen)
    assert latest_snapshot(snapshots, holder.epoch)[0].step == 15  # type: ignore[union-attr]
    for lease in (frozen, holder):
        lease.release()


def test_only_a_process_of_this_host_that_is_gone_is_known_to_be_dead(monkeypatch: pytest.MonkeyPatch):
    gone = 2**30  # a number that no process has
    here = Claim(owner="a", where=_where(), process=os.getpid(), ticket=1, beats=1)
    assert not _is_dead(here)
    assert _is_dead(here.changed(process=gone))
    assert not _is_dead(here.changed(process=gone, where="another host"))  # where it may well live

    def refuse(process: int, signum: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not _is_dead(here)  # another user's, and alive
