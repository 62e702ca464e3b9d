"""The state of a run on its way between actors and snapshots.

Copies are taken in order with the running calls and fetched in a thread, while the run goes on. Where the learners see
the files that the driver sees, they write and read their tasks themselves, and only names and checksums travel.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rayctsl.cluster.actors import PROBE
from rayctsl.cluster.calls import Calls
from rayctsl.cluster.faults import cause_of, describe
from rayctsl.cluster.team import Team, TeamMember
from rayctsl.contract import JsonObject
from rayctsl.learning.engine import EngineFault
from rayctsl.learning.snapshot import RunState, TaskFiles, TaskState
from rayctsl.storage import Storage


class Captures:
    """Takes the state of a team, and hands every learner its part of one."""

    def __init__(self, team: Team, collect: Callable[[Calls], list[Any]]):
        """
        Args:
            collect: waits for calls, given by reference and actor, and tells a fault when one is lost.
        """
        self.team, self._collect = team, collect
        self._reach: bool | None = None  # whether all learners see the driver's files; None: not known yet
        self._fetching = ThreadPoolExecutor(1, "captures")

    def forget_reach(self) -> None:
        """The team is another one now, perhaps on other nodes."""
        self._reach = None

    def take(self, step: int, hosts: Sequence[TeamMember], facts: JsonObject, into: str | None) -> Future[RunState]:
        """Copy what the meta-learner and the hosts of tasks have now."""
        assert self.team.meta is not None
        meta = self.team.meta.actor.capture_meta.remote()
        themselves = into is not None and self._learners_reach(into)
        if themselves:
            parts = [host.actor.write_held.remote(host.actor.hold_tasks.remote(into)) for host in hosts]
        else:
            parts = [host.actor.capture_tasks.remote() for host in hosts]

        def fetch() -> RunState:
            try:
                tasks = {name: value for part in ray.get(parts) for name, value in part.items()}
                kept = RunState(step, ray.get(meta), {}, facts)
                return replace(kept, written=tasks) if themselves else replace(kept, tasks=tasks)
            except RayError as error:
                cause = cause_of(error)
                if isinstance(cause, RayError) and not isinstance(cause, RayTaskError):
                    raise EngineFault(f"a snapshot was lost: {describe(cause)}") from error
                raise cause from None

        return self._fetching.submit(fetch)

    def share(self, state: RunState | None, names: tuple[str, ...]) -> Mapping[str, TaskState] | None:
        """A learner's part of a state: its files' names where it can read them itself."""
        if state is None:
            return None
        if isinstance(state.tasks, TaskFiles) and self._learners_reach(state.tasks.folder):
            return state.tasks.only(names)
        return {name: state.tasks[name] for name in names}

    def _learners_reach(self, address: str) -> bool:
        """Found out once for a team, by a file."""
        if self._reach is None:
            folder, token = Storage(address), uuid.uuid4().hex
            folder.write(PROBE, token.encode())
            actors = [member.actor for member in self.team.learners]
            try:
                self._reach = all(self._collect({actor.reaches.remote(address, token): actor for actor in actors}))
            finally:
                folder.delete(PROBE)
        return self._reach

    def close(self) -> None:
        self._fetching.shutdown(wait=False, cancel_futures=True)
