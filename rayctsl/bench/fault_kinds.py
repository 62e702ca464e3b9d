"""Ways to disturb a run: each a function that does its harm and says whether it found a victim."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from rayctsl.cluster.testbed import call_inside
from rayctsl.learning.snapshot import snapshot_folders

if TYPE_CHECKING:
    from rayctsl.cluster.team import TeamMember
    from rayctsl.learning.run import Run

FILLER, SMALL_DISK = "filler", 2**26

Harm = Callable[["Run", Random], bool]


def _learner(run: Run, chance: Random) -> TeamMember | None:
    members = list(run.engine.team.learners)  # type: ignore[attr-defined]
    return chance.choice(members) if members else None


def _signal(member: TeamMember | None, number: int) -> bool:
    if member is None or member.place is None:
        return False  # just being replaced
    try:
        os.kill(member.place.pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_learner(run: Run, chance: Random) -> bool:
    return _signal(_learner(run, chance), signal.SIGKILL)


def kill_meta_learner(run: Run, chance: Random) -> bool:
    return _signal(run.engine.team.meta, signal.SIGKILL)  # type: ignore[attr-defined]


def segfault(run: Run, chance: Random) -> bool:
    return _signal(_learner(run, chance), signal.SIGSEGV)


def freeze(run: Run, chance: Random) -> bool:
    """Stopped, and never continued."""
    return _signal(_learner(run, chance), signal.SIGSTOP)


def hold_gil(run: Run, chance: Random) -> bool:
    """A thread of the learner that computes for ever without letting others run."""
    member = _learner(run, chance)
    if member is not None:
        call_inside(member.actor, _search_for_ever, at_once=True)
    return member is not None


def _search_for_ever(worker: object) -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")  # exponential, and inside one call of C


def jump_clock(run: Run, chance: Random) -> bool:
    """A learner's and the driver's wall clocks go off by a day; then the learner is killed."""
    member = _learner(run, chance)
    if member is None:
        return False
    _shift_wall_clock(None)
    call_inside(member.actor, _shift_wall_clock, at_once=True)
    return _signal(member, signal.SIGKILL)


def _shift_wall_clock(worker: object) -> None:
    right = getattr(time, "right_time", time.time)
    time.right_time = right  # type: ignore[attr-defined]
    day = 86_400 if time.time is right else -86_400
    time.time = lambda: right() + day


def damage_snapshot(run: Run, chance: Random) -> bool:
    """The newest snapshot loses the end of a file; then a learner is killed."""
    newest = _newest_folder(run)
    if newest is None:
        return False
    path = chance.choice(sorted(newest.glob("*.safetensors")))
    path.write_bytes(path.read_bytes()[:-8])
    return kill_learner(run, chance)


def leave_half_a_snapshot(run: Run, chance: Random) -> bool:
    """What an older attempt may have left behind: files without a manifest, a strange claim; then a kill."""
    newest = _newest_folder(run)
    if newest is None:
        return False
    strange = newest.parent / f"step-{run.total:09d}"
    strange.mkdir(exist_ok=True)
    (strange / "meta.safetensors").write_bytes(b"half of it")
    (strange / "meta.safetensors.0a1b2c3d.tmp").write_bytes(b"")
    (newest.parent / "lease" / "claim-old.json.tmp").write_bytes(b"{")
    return kill_learner(run, chance)


def kill_driver(run: Run, chance: Random) -> bool:
    """This very process; whoever looks after it starts another."""
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def fill_disk(run: Run, chance: Random) -> bool:
    """The run's disk takes no more; the run stops, and is continued when there is room again."""
    path = Path(run.folder.storage.root).parent / FILLER
    if shutil.disk_usage(path.parent).total > SMALL_DISK:
        raise ValueError(f"{path.parent} is too large a disk to be filled")
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**16))
    return True


def _newest_folder(run: Run) -> Path | None:
    """Of at least two, so that there is one to fall back on."""
    storage = run.folder.storage.inside("checkpoints")
    whole = [name for name in snapshot_folders(storage) if storage.exists(f"{name}/manifest.json")]
    return Path(storage.root, whole[-1]) if len(whole) > 1 else None


KINDS: dict[str, Harm] = {
    "learner": kill_learner,
    "meta-learner": kill_meta_learner,
    "segfault": segfault,
    "frozen": freeze,
    "gil": hold_gil,
    "clock": jump_clock,
    "damaged": damage_snapshot,
    "leftovers": leave_half_a_snapshot,
    "driver": kill_driver,
    "full disk": fill_disk,
}
