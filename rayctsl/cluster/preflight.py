"""Before learners are built: one process of every node fetches the data and says how it differs from the driver.

What must be on the nodes: docs/OPERATIONS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rayctsl.cluster.calls import Actor, Calls, Reference
from rayctsl.cluster.membership import Place
from rayctsl.config import DataConfig
from rayctsl.learning.surroundings import Surroundings, open_checked, surroundings


def differences(
    expected: Mapping[str, str], names: Sequence[str], root: str | None, checksums: Mapping[str, str]
) -> list[str]:
    """How this process differs from what is expected of it: its packages, and its copy of the named datasets.

    Plain values, for a node with another rayctsl must be able to answer.
    """
    found = Surroundings(**expected).differences(surroundings())
    for name in names:
        try:
            open_checked(name, root, checksums)
        except ValueError as error:
            found.append(str(error))
    return found


Hosting = tuple[Actor, Place, Sequence[str]]  # an actor, where it is, the tasks that it is to host


@dataclass(frozen=True)
class Question:
    """What a node is asked, and by which of its actors."""

    actor: Actor
    place: Place
    names: frozenset[str]


class Preflight:
    """Asks each node once, and again only for datasets that are new to it."""

    def __init__(self, data: DataConfig):
        self.data = data
        self._passed: dict[str, frozenset[str]] = {}

    def check(self, hostings: Sequence[Hosting], collect: Callable[[Calls], list[list[str]]]) -> None:
        """Ask what is open, with the function that waits for calls, given by reference and actor."""
        asked = self.ask(hostings)
        self.judge(list(asked.values()), collect({call: question.actor for call, question in asked.items()}))

    def ask(self, hostings: Sequence[Hosting]) -> dict[Reference, Question]:
        """The questions that are open, by reference."""
        here, data, asked = asdict(surroundings()), self.data, {}
        for node in dict.fromkeys(place.node for _, place, _ in hostings):
            own = [hosting for hosting in hostings if hosting[1].node == node]
            names = frozenset(name for _, _, hosted in own for name in hosted if name in data.checksums)
            new = names - self._passed.get(node, frozenset())
            if new or node not in self._passed:
                actor, place, _ = own[0]
                call = actor.preflight.remote(here, sorted(new), data.root, data.checksums)
                asked[call] = Question(actor, place, new)
        return asked

    def judge(self, asked: Sequence[Question], answers: Sequence[list[str]]) -> None:
        """Refuse nodes that differ, in one sentence."""
        wrong = []
        for question, found in zip(asked, answers, strict=True):
            place = question.place
            if found:
                wrong.append(f"node {place.address} differs from the driver: {'; '.join(found)}")
            self._passed[place.node] = self._passed.get(place.node, frozenset()) | question.names
        if wrong:
            raise ValueError(f"{'. And '.join(wrong)}. Install the same on all nodes, or point them at the same data")
