"""Faults as the killer deals them: those that find no victim are none, and a host that was cut off comes back."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from rayctsl.bench import network
from rayctsl.bench.fault_kinds import KINDS
from rayctsl.bench.journal import Journal
from rayctsl.bench.killer import Killer
from rayctsl.bench.network import CUT_SECONDS, CableCutter, on_host


def a_run_on(*nodes: str) -> SimpleNamespace:
    """As much of a run as a fault looks at; its learners are just being replaced."""
    places = [SimpleNamespace(node=node) for node in nodes]
    return SimpleNamespace(engine=SimpleNamespace(team=SimpleNamespace(learners=[], meta=None, places=places)))


@pytest.mark.parametrize("kind", ["learner", "meta-learner", "segfault", "frozen", "gil", "clock"])
def test_a_fault_that_finds_no_victim_is_none(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", right := time.time)
    assert not KINDS[kind](a_run_on(), Random(0))
    assert time.time is right


def test_a_fault_that_found_no_victim_is_dealt_later_and_nobody_waits_for_a_recovery(tmp_path: Path) -> None:
    killer = Killer(["frozen"], Journal(tmp_path / "journal"), None)
    killer.target = a_run_on()
    killer._deal("clock")
    assert killer.plan == ["frozen", "clock"]
    assert killer.recovered.is_set()
    assert killer.journal.open_fault is None


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run, in order, with the waits between; nothing is."""
    ran = list[list[str]]()
    for start in ("run", "Popen"):
        monkeypatch.setattr(network.subprocess, start, lambda command, **how: ran.append(command))
    monkeypatch.setattr(network.time, "sleep", lambda seconds: ran.append([f"wait {seconds}"]))
    return ran


def test_after_a_cut_the_second_host_comes_back_to_the_head_on_the_first(tmp_path: Path, commands) -> None:
    cutter = CableCutter([], Journal(tmp_path / "journal"), None)
    cutter.target = a_run_on("one", "other")
    assert cutter.harm("partition")
    *cut, node = commands
    link = on_host(1, "ip", "link", "set", "rctb0")
    assert cut == [[*link, "down"], [f"wait {CUT_SECONDS}"], [*link, "up"]]
    assert node[: len(on_host(1))] == on_host(1)
    assert node[-2:] == ["--address=10.77.0.1:6399", "--node-ip-address=10.77.0.2"]


def test_a_cable_is_not_cut_before_the_second_host_is_back(tmp_path: Path, commands) -> None:
    cutter = CableCutter([], Journal(tmp_path / "journal"), None)
    cutter.target = a_run_on("one", "one")
    assert not cutter.harm("partition")
    assert commands == []
