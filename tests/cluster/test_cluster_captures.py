"""Who writes a snapshot's tasks: the learners, where all of them see the driver's files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rayctsl.cluster.actors import PROBE
from rayctsl.cluster.captures import Captures
from rayctsl.cluster.team import Team
from rayctsl.config import TopologyConfig
from rayctsl.storage import Storage


class Asked:
    """A learner that says whether it finds the driver's file, and notes that it was asked."""

    def __init__(self, folder: str | None):
        self.folder, self.times = folder, 0
        self.reaches = SimpleNamespace(remote=self._reaches)

    def _reaches(self, address: str, token: str) -> bool:
        self.times += 1
        return self.folder is not None and Storage(self.folder).read(PROBE) == token.encode()


def test_every_new_team_is_asked_whether_it_sees_the_files(tmp_path):
    here, elsewhere = Asked(str(tmp_path)), Asked(None)
    team = Team(TopologyConfig(), 2, None, 0)

    def collect(calls: dict[Any, Any]) -> list[Any]:
        return list(calls)

    captures = Captures(team, collect)
    for learners, expected in (([here], True), ([here, elsewhere], False)):
        team.learners = [SimpleNamespace(actor=learner) for learner in learners]
        captures.forget_reach()
        assert captures._learners_reach(str(tmp_path)) is expected
        assert captures._learners_reach(str(tmp_path)) is expected, "found out once for a team"
    assert (here.times, elsewhere.times) == (2, 1)
    assert list(tmp_path.iterdir()) == []
    captures.close()
