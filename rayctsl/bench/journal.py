"""What happened to a run that was disturbed: a line of JSON for every fault and for every recovery.

A file, because the driver that writes it is among the victims.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict


@dataclass(frozen=True)
class Event:
    """A fault, or the end of a recovery. Example: Event("frozen", at=1234.5, seconds=10.4)"""

    kind: str
    at: float  # on the machine's monotonic clock, which all its processes share
    seconds: float | None = None  # of a recovery: since the fault

    @property
    def is_fault(self) -> bool:
        return self.seconds is None


class Recovery(TypedDict):
    """Seconds from a fault until the run went on."""

    median: float
    worst: float
    count: int


class Journal:
    """Appended to by the driver, read by whoever looks after it."""

    def __init__(self, path: Path):
        self.path = path
        path.touch()

    @property
    def events(self) -> list[Event]:
        return [Event(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def note(self, kind: str, seconds: float | None = None) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(Event(kind, time.monotonic(), seconds))) + "\n")

    def take_back(self, kind: str) -> None:
        """The latest fault of a kind found no victim."""
        lines = self.path.read_text().splitlines(keepends=True)
        last = max(n for n, event in enumerate(self.events) if event.kind == kind and event.is_fault)
        self.path.write_text("".join(lines[:last] + lines[last + 1 :]))

    @property
    def open_fault(self) -> Event | None:
        """The latest fault, while nobody has recovered from it."""
        latest = self.events[-1:]
        return latest[0] if latest and latest[0].is_fault else None

    @property
    def faults(self) -> dict[str, int]:
        """How many were dealt, by kind."""
        counts: dict[str, int] = {}
        for event in self.events:
            if event.is_fault:
                counts[event.kind] = counts.get(event.kind, 0) + 1
        return counts

    def left_of(self, plan: list[str]) -> list[str]:
        """The faults of a plan that are still to be dealt."""
        left = list(plan)
        for event in self.events:
            if event.is_fault:
                left.remove(event.kind)
        return left

    @property
    def recoveries(self) -> dict[str, Recovery]:
        """By kind of fault."""
        by_kind: dict[str, list[float]] = {}
        for event in self.events:
            if event.seconds is not None:
                by_kind.setdefault(event.kind, []).append(event.seconds)
        return {
            kind: Recovery(median=round(statistics.median(each), 1), worst=round(max(each), 1), count=len(each))
            for kind, each in sorted(by_kind.items())
        }
