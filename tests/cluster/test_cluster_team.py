"""A team after a fault: who does not answer is left behind at once, and nobody waits for it again."""

from __future__ import annotations

import sys
import threading

import pytest
import ray
from ray import cloudpickle

from rayctsl.cluster import team as team_module
from rayctsl.cluster.team import Seat, Team, TeamMember
from rayctsl.config import TopologyConfig

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
