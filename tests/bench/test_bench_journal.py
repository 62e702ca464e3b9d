"""What is to happen to a disturbed run, and what has happened, as the driver's successors and the report read it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rayctsl.bench.chaos import plan_faults
from rayctsl.bench.journal import Journal


def test_a_successor_knows_what_is_left_and_what_it_recovers_from(tmp_path: Path) -> None:
    plan, journal = ["learner", "node", "driver", "learner"], Journal(tmp_path / "journal")
    journal.note("learner")
    journal.note("learner", 1.5)
    assert journal.open_fault is None
    journal.note("driver")
    successor = Journal(tmp_path / "journal")
    assert successor.left_of(plan) == ["node", "learner"]
    assert successor.open_fault is not None
    assert successor.open_fault.kind == "driver"
    successor.note("driver", 8.04)
    assert successor.open_fault is None


def test_a_plan_has_as_many_faults_as_are_asked_for_of_every_kind_as_often() -> None:
    kinds = ["learner", "node", "driver"]
    plan = plan_faults(kinds, 8, seed=0)
    assert Counter(plan) == {"learner": 3, "node": 3, "driver": 2}
    assert plan == plan_faults(kinds, 8, seed=0)
    assert len({tuple(plan_faults(kinds, 8, seed)) for seed in range(5)}) > 1


def test_recoveries_by_kind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for seconds in (1.0, 9.0, 2.0):
        journal.note("frozen")
        journal.note("frozen", seconds)
    assert journal.recoveries == {"frozen": {"median": 2.0, "worst": 9.0, "count": 3}}
    assert journal.faults == {"frozen": 3}


def test_of_two_faults_of_a_kind_the_later_is_taken_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("learner")
    journal.note("learner", 1.0)
    journal.note("learner")
    journal.take_back("learner")
    assert [event.is_fault for event in journal.events] == [True, False]


def test_a_fault_without_a_victim_was_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("learner")
    journal.note("learner", 1.0)
    journal.note("damaged")
    journal.take_back("damaged")
    assert journal.faults == {"learner": 1}
    assert journal.left_of(["damaged", "learner"]) == ["damaged"]
    assert journal.open_fault is None
