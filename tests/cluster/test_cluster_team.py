"""A team after a fault: who does not answer is left behind at once, and nobody waits for it again."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError

from rayctsl.cluster import team as team_module
from rayctsl.cluster.actors import TaskLearner
from rayctsl.cluster.membership import Place
from rayctsl.cluster.note import note_name
from rayctsl.cluster.team import Seat, Team, TeamMember
from rayctsl.config import TopologyConfig
from tests.kept_actors import Pool

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test's module
pytestmark = pytest.mark.ray


@ray.remote(num_cpus=0, max_concurrency=2)
class Peer:
    def __init__(self, stuck: bool):
        self.stuck = stuck

    def abort(self) -> None:
        pass

    def leave(self) -> None:
        if self.stuck:
            threading.Event().wait()

    def place(self) -> str:
        return "here"


def test_who_does_not_leave_when_called_off_is_not_asked_again(ray_cluster, monkeypatch):
    team = Team(TopologyConfig(workers=2), 3, None, 0)
    peers = [Peer.remote(stuck) for stuck in (False, True, True)]
    ray.get([peer.place.remote() for peer in peers])
    members = [TeamMember(peer, Seat(None, 0), None) for peer in peers]
    team.learners, team.meta = members[:2], members[2]
    monkeypatch.setattr(team_module, "GRACE_SECONDS", 1.0)
    team.call_off()
    assert team.members == members[:1]
    assert team.part_from_lost() == []
    team.learners, team.meta = [], None
    for peer in peers:
        ray.kill(peer)


@ray.remote(num_cpus=0, concurrency_groups={"control": 1})
class SlowToWake:
    """Leaves at once, and hears late that it was called off: Ray keeps no order between threads."""

    def __init__(self) -> None:
        self.woken = False

    @ray.method(concurrency_group="control")
    def abort(self) -> None:
        time.sleep(1.0)
        self.woken = True

    def leave(self) -> None:
        pass

    def was_woken(self) -> bool:
        return self.woken


def test_nobody_is_called_off_who_has_joined_the_next_group_already(ray_cluster):
    peer = SlowToWake.remote()
    assert not ray.get(peer.was_woken.remote())
    team = Team(TopologyConfig(workers=1), 1, None, 0)
    team.learners = [TeamMember(peer, Seat(None, 0), None)]
    team.call_off()
    assert ray.get(peer.was_woken.remote())
    assert [member.actor for member in team.members] == [peer]
    ray.kill(peer)


def test_a_kept_actor_that_has_died_meanwhile_is_not_lent(ray_cluster):
    """As one whose node was taken away between two tests."""
    pool = Pool()
    first = pool.lend(Peer, "Peer", False)
    pool.take_back(first)
    ray.get(pool.idle["Peer"][0][1])
    ray.kill(first)
    with pytest.raises(RayActorError):
        ask_for_ever(first)  # it goes on answering for a moment
    second = pool.lend(Peer, "Peer", False)
    assert ray.get(second.place.remote()) == "here"
    ray.kill(second)


def ask_for_ever(actor: Any) -> None:
    while True:
        ray.get(actor.place.remote())


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Team:
    """A team for three tasks with room for five learners; its actors are words, and those that are ended are noted."""

    class Played(Team):
        ended: ClassVar[list[str]]

        def _usable_seats(self) -> list[Seat]:
            return [Seat(None, bundle) for _, bundles in self._groups for bundle in bundles]

        def _new_member(self, kind: Any, seat: Seat) -> TeamMember:
            return TeamMember(f"{'learner' if kind is TaskLearner else 'meta'} {seat.bundle}", seat, None)

    Played.ended = []
    monkeypatch.setattr(team_module.ray, "kill", Played.ended.append)
    played = Played(TopologyConfig(workers=3), 3, None, 0)
    played._groups = [(None, range(5))]
    return played


def at(node: str, actor: str, bundle: int) -> TeamMember:
    return TeamMember(actor, Seat(None, bundle), None, Place(node, "127.0.0.1", pid=100 + bundle))


def test_only_as_many_learners_start_as_are_missing(team):
    team.learners, team.meta = [at("one", "old", 1)], at("one", "meta", 0)
    assert team.look_for_room()
    assert [member.actor for member in team._starting] == ["learner 0", "learner 2"]


def test_nobody_outlives_a_team_not_even_who_is_still_starting(team, monkeypatch):
    monkeypatch.setattr(team_module, "remove_placement_group", lambda group: None)
    team.learners = [at("one", "old", 1)]
    team._start_missing()
    team.release()
    assert sorted(team.ended) == ["learner 0", "learner 2", "meta 1", "old"]
    assert team.members == team._starting == []


def test_a_neighbour_that_does_not_answer_is_not_waited_for(monkeypatch):
    def get(answer: Any, timeout: float) -> Any:
        if answer is None:
            raise GetTimeoutError(f"nothing in {timeout} s")
        return answer

    def neighbour(answer: Any) -> TeamMember:
        return TeamMember(SimpleNamespace(read_note=SimpleNamespace(remote=lambda name: answer)), Seat(None, 0), None)

    monkeypatch.setattr(team_module.ray, "get", get)
    assert team_module._ask_note([neighbour(None), neighbour((7, "task"))], "note") == (7, "task")


@pytest.mark.parametrize("death", [RayActorError(), OutOfMemoryError("low on memory")])
def test_a_dead_process_is_asked_about_on_its_own_node(team, monkeypatch, death):
    team.learners = [at("one", "dead", 1), at("two", "far", 2), at("one", "near", 3)]
    asked = []
    monkeypatch.setattr(team_module, "_ask_note", lambda members, name: asked.append((members, name)) or (7, "task"))
    fault = team.explain(death, "a learner died", "dead", "run")
    assert (fault.at, fault.counts) == ((7, "task"), True)
    assert [([member.actor for member in members], name) for members, name in asked] == [
        (["near"], note_name("run", 101))
    ]
