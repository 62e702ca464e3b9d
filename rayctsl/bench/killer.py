"""Deals the faults of a plan to a run, from a thread of its driver."""

from __future__ import annotations

import math
import random
import threading
import time
from typing import Protocol

from rayctsl.bench.fault_kinds import KINDS
from rayctsl.bench.journal import Journal
from rayctsl.learning.run import Hooks, Run


class Nodes(Protocol):
    """A cluster whose nodes can be lost."""

    def ids(self) -> list[str]: ...  # of those that may be lost, never the head
    def lose(self, node_id: str) -> None: ...
    def replace_lost(self) -> None: ...


class Killer(threading.Thread):
    """Deals the faults of a plan at random moments while a run is advancing."""

    def __init__(
        self,
        plan: list[str],
        journal: Journal,
        nodes: Nodes | None,
        seed: int = 0,
        replace: bool = True,
        until: float = math.inf,
    ):
        """
        Args:
            journal: what it says of the plan's beginning was done by earlier drivers.
            replace: whether lost nodes come back.
            until: when to leave the rest of the plan undone, on the monotonic clock.
        """
        super().__init__(daemon=True)
        self.plan, self.journal, self.nodes, self.replace = journal.left_of(plan), journal, nodes, replace
        self.until = until
        self.random = random.Random(f"{seed}/{len(self.plan)}")
        self.target: Run | None = None
        self.dealt = 0.0  # when the latest fault was
        self.latest = ""
        self.recovered = threading.Event()  # from the latest fault
        self.recovered.set()

    @property
    def hooks(self) -> Hooks:
        return Hooks(self.watch, self.before_recovery, self.note_recovery)

    def watch(self, run: Run) -> None:
        """Begin, now that the run has begun, or has been continued after its driver was lost."""
        if self.target is None:
            if (fault := self.journal.open_fault) is not None:
                self.journal.note(fault.kind, time.monotonic() - fault.at)
            self.target = run
            self.start()

    def before_recovery(self, run: Run) -> None:
        """Fill up the cluster again, if that is wanted."""
        if self.nodes is not None and self.replace:
            self.nodes.replace_lost()

    def note_recovery(self, run: Run, seconds: float) -> None:
        """Of a fault that was dealt, from that moment; of one that came by itself, its recovery alone."""
        dealt = not self.recovered.is_set()
        self.journal.note(self.latest if dealt else "by itself", time.monotonic() - self.dealt if dealt else seconds)
        self.recovered.set()

    def run(self) -> None:
        assert self.target is not None
        while self.plan and self.target.step < self.target.total:
            self._wait_for_progress(self.target)
            if self.target.step >= self.target.total or time.monotonic() > self.until:
                return
            self._deal(self.plan.pop(0))

    def _deal(self, kind: str) -> None:
        self.latest, self.dealt = kind, time.monotonic()
        self.recovered.clear()
        self.journal.note(kind)  # before, for there may be nobody to do it afterwards
        if not self.harm(kind):
            self.journal.take_back(kind)
            self.recovered.set()
            self.plan += [kind] if kind != "node" else []  # no node is left to lose

    def _wait_for_progress(self, run: Run) -> None:
        """Until the run has recovered and made a step since then, then a random moment."""
        while not self.recovered.wait(0.05) and run.step < run.total:
            pass
        step = run.step
        while step == run.step < run.total:
            time.sleep(0.05)
        time.sleep(self.random.uniform(0.0, 1.5))

    def harm(self, kind: str) -> bool:
        """Do it; whether a victim was found."""
        assert self.target is not None
        if kind != "node":
            return KINDS[kind](self.target, self.random)
        standing = self.nodes.ids() if self.nodes else []
        if not standing:
            return False
        victim = self.random.choice(standing)
        hosts = {place.node for place in self.target.engine.team.places}  # type: ignore[attr-defined]
        if victim not in hosts:
            self.recovered.set()  # nobody will miss it
        assert self.nodes is not None
        self.nodes.lose(victim)
        return True
