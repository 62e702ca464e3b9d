"""The Ray of a service's own, played by plain processes: whichever begins or runs is ended with the service."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from serve import ray_head
from serve.ray_head import Head, RayHead
from serve.ray_jobs import RayJobs


class Clock:
    """Time passes only where somebody sleeps, and nobody sleeps for ever."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 100.0, "it is waited for without end"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield made
    made.kill()
    made.wait()


def test_a_head_that_begins_in_the_place_of_a_dead_one_is_ended_too(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_head, "STOP_SECONDS", 5.0)
    head = RayHead(tmp_path, RayJobs(None))
    head._use(Head(1, "before time began", "http://127.0.0.1:1", "/tmp/rayctsl-none", ""))
    head._process = process
    head._starting = Head(process.pid, ray_head._born(process.pid), "http://127.0.0.1:2", "/tmp/rayctsl-none", "")
    head.stop()
    assert process.poll() is not None


def test_a_head_that_cannot_be_noted_or_does_not_answer_is_ended(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RayHead, head: Head) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ray_head, "subprocess", SimpleNamespace(Popen=lambda *_, **__: process, DEVNULL=None))
    monkeypatch.setattr(RayHead, "_note", full)
    with pytest.raises(OSError, match="No space"):
        RayHead(tmp_path, RayJobs(None)).ensure()
    assert process.poll() is not None


def test_a_head_that_runs_but_does_not_answer_is_given_up(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_head, "time", Clock())
    monkeypatch.setattr(ray_head, "START_SECONDS", 1.0)
    silent = Head(process.pid, ray_head._born(process.pid), "http://127.0.0.1:1", "/tmp/rayctsl-none", "")
    with pytest.raises(RuntimeError, match=r"Ray did not answer within 1 s; .*ray\.log says why"):
        RayHead(tmp_path, RayJobs(None))._wait_until_ready(silent)
