"""The actors of a run: who lives, who is starting, and where there is room for more.

A placement group with a bundle per wanted learner is the run's standing wish. What a lost node had is dropped at once;
Ray fills those bundles again when it has room, and then a new learner is started there beside the running ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayctsl.cluster.actors import MetaLearner, TaskLearner
from rayctsl.cluster.faults import DEATHS, check_importable, is_preemption
from rayctsl.cluster.membership import Place
from rayctsl.cluster.note import note_name
from rayctsl.cluster.resources import choose_num_learners, gpus_of, reserve, wish_for
from rayctsl.config import TopologyConfig
from rayctsl.learning.engine import EngineFault

START_SECONDS = 300.0  # for an actor to start
GRACE_SECONDS = 5.0  # for survivors of a fault to answer; who does not is left behind
LOOK_SECONDS = 5.0  # between two looks for room


@dataclass(frozen=True)
class Seat:
    """A bundle of a placement group."""

    group: PlacementGroup
    bundle: int


@dataclass
class TeamMember:
    """An actor and where it is; `placed` is its first answer, on its way."""

    actor: Any
    seat: Seat
    placed: Any
    place: Place | None = None


class Team:
    """W learners and the meta-learner."""

    def __init__(self, topology: TopologyConfig, num_tasks: int, placement: PlacementGroup | None, first_bundle: int):
        self.topology, self.num_tasks = topology, num_tasks
        self.learners: list[TeamMember] = []
        self.meta: TeamMember | None = None
        self._starting: list[TeamMember] = []
        self._starting_meta: TeamMember | None = None
        self._given = placement
        self._groups: list[tuple[PlacementGroup, range]] = []  # and which of their bundles are learners'
        self._meta_seat: Seat | None = None  # where the meta-learner has a bundle of its own
        self._looked = 0.0
        self._began = False
        if placement is not None:
            last = placement.bundle_count - bool(topology.meta_resources)
            self._groups = [(placement, range(first_bundle, last))]
            self._meta_seat = Seat(placement, last) if topology.meta_resources else None

    @property
    def members(self) -> list[TeamMember]:
        """All that take part, the meta-learner last."""
        return [*self.learners, self.meta] if self.meta else list(self.learners)

    @property
    def actors(self) -> list[Any]:
        return [member.actor for member in self.members]

    @property
    def places(self) -> list[Place]:
        return [member.place for member in self.members if member.place is not None]

    def assemble(self) -> list[TeamMember]:
        """Part from the lost, start whom there is room for, and wait for enough of them; returns the lost.

        A first start waits for everyone. After a fault the run goes on with who is left, as soon as `wait_seconds` have
        passed: the others join when they are there.
        """
        first, self._began = not self._began, True
        lost = self.part_from_lost()
        if not self._groups:
            self._reserve()
        patience = START_SECONDS if first else self.topology.wait_seconds
        least = min(self.topology.min_workers, sum(len(bundles) for _, bundles in self._groups))
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            self._start_missing()
            self._welcome(timeout=0.2 if self._starting or self._starting_meta else 0.0)
            enough = self.meta is not None and len(self.learners) >= max(1, least)
            if enough and (waited >= patience or not self._starting):
                return lost
            if waited > START_SECONDS:
                raise GetTimeoutError(f"no {max(1, least)} learners and meta-learner within {START_SECONDS:.0f} s")
            if not self._starting and not self._starting_meta:
                time.sleep(0.5)  # for room that a lost node has left to be found elsewhere

    def _reserve(self) -> None:
        wanted = choose_num_learners(self.topology, self.num_tasks)
        group, count = reserve(self.topology, wanted, min(self.topology.min_workers, wanted))
        self._groups = [(group, range(count))]
        self._meta_seat = Seat(group, count) if self.topology.meta_resources else None
        if count < wanted:
            self._groups.append((wish_for(self.topology, wanted - count), range(wanted - count)))

    def part_from_lost(self) -> list[TeamMember]:
        """Leave out who does not answer; asked all at once."""
        asked = {member.actor.place.remote(): member for member in self.members}
        if not asked:
            return []
        done, late = ray.wait(list(asked), num_returns=len(asked), timeout=GRACE_SECONDS)
        lost = [asked[reference] for reference in late]
        for reference in done:
            try:
                asked[reference].place = ray.get(reference)
            except RayError:
                lost.append(asked[reference])
        self._part_from(lost)
        return lost

    def part_from(self, actor: Any) -> None:
        """Leave out an actor at once: one that Ray is asked to end goes on answering for a moment."""
        self._part_from([member for member in self.members if member.actor is actor])

    def _part_from(self, lost: list[TeamMember]) -> None:
        for member in lost:
            ray.kill(member.actor)
        self.learners = [member for member in self.learners if member not in lost]
        if self.meta in lost:
            self.meta = None

    def look_for_room(self) -> bool:
        """Look for room now and then, and start learners there; whether any are on their way."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._start_missing()
        return bool(self._starting)

    def grow(self) -> bool:
        """Take in the learners that have come meanwhile; whether any did."""
        self.look_for_room()
        before = len(self.learners)
        if self._starting:
            self._welcome(timeout=0.0)
        return len(self.learners) > before

    def _start_missing(self) -> None:
        self._looked = time.monotonic()
        taken = {member.seat for member in [*self.learners, *self._starting]}
        if len(taken) < self._wanted or self.meta is None:
            free = [seat for seat in self._usable_seats() if seat not in taken]
            for seat in free[: self._wanted - len(taken)]:
                self._starting.append(self._new_member(TaskLearner, seat))
        if self.meta is None and self._starting_meta is None:
            open_seats = [self._meta_seat] if self._meta_seat else [m.seat for m in [*self.learners, *self._starting]]
            if open_seats:
                self._starting_meta = self._new_member(MetaLearner, open_seats[0])

    @property
    def _wanted(self) -> int:
        return min(self.num_tasks, sum(len(bundles) for _, bundles in self._groups))

    def _usable_seats(self) -> list[Seat]:
        """Learners' bundles that lie on living nodes."""
        standing = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        seats = []
        for group, bundles in self._groups:
            nodes = placement_group_table(group).get("bundles_to_node_id", {})
            seats += [Seat(group, bundle) for bundle in bundles if nodes.get(bundle) in standing]
        return seats

    def _new_member(self, kind: Any, seat: Seat) -> TeamMember:
        learner = kind is TaskLearner
        actor = kind.options(
            num_cpus=self.topology.cpus_per_learner if learner else 0,
            num_gpus=gpus_of(self.topology) if learner else 0,
            resources=None if learner else dict(self.topology.meta_resources),
            scheduling_strategy=PlacementGroupSchedulingStrategy(seat.group, seat.bundle),
        ).remote()
        return TeamMember(actor, seat, actor.place.remote())

    def _welcome(self, timeout: float) -> None:
        """Take in who has started."""
        waiting = {member.placed: member for member in [*self._starting, self._starting_meta] if member is not None}
        if not waiting:
            return
        done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=timeout)
        for reference in done:
            member = waiting[reference]
            try:
                member.place = ray.get(reference)
            except RayError as error:
                check_importable(error)
                member.place = None  # it did not live to answer; another will be started
            if member is self._starting_meta:
                self._starting_meta, self.meta = None, member if member.place else None
            else:
                self._starting.remove(member)
                self.learners += [member] if member.place else []

    def explain(self, error: BaseException, text: str, actor: Any, run_id: str) -> EngineFault:
        """The fault of an actor, with the task that it was at when its process died."""
        at = None
        victim = next((member for member in self.members if member.actor is actor), None)
        if victim is not None and victim.place is not None and isinstance(error, DEATHS):
            neighbours = [m for m in self.members if m.place and m.place.node == victim.place.node and m is not victim]
            at = _ask_note(neighbours, note_name(run_id, victim.place.pid))
        return EngineFault(text, counts=not is_preemption(error), at=at)

    def call_off(self) -> None:
        """Wake everyone who waits for a lost peer; who does not answer within the grace period is left behind."""
        answers = {member.actor.abort.remote(): member for member in self.members}
        answers |= {member.actor.leave.remote(): member for member in self.members}
        # Both are waited for: they run in threads of their own, and a late abort would call off the next group.
        _, late = ray.wait(list(answers), num_returns=len(answers), timeout=GRACE_SECONDS)
        stuck = [answers[reference] for reference in late]
        self._part_from([member for member in self.members if member in stuck])

    def release(self) -> None:
        """Stop the actors and give the resources back."""
        for member in [*self.members, *self._starting, self._starting_meta]:
            if member is not None:
                ray.kill(member.actor)
        self.learners, self.meta, self._starting, self._starting_meta = [], None, [], None
        if self._given is None:
            for group, _ in self._groups:
                remove_placement_group(group)
            self._groups = []


def _ask_note(neighbours: list[TeamMember], name: str) -> tuple[int, str] | None:
    """What a dead process was at, from the first of its neighbours that can tell."""
    for neighbour in neighbours:
        try:
            return ray.get(neighbour.actor.read_note.remote(name), timeout=GRACE_SECONDS)
        except RayError:
            continue
    return None
