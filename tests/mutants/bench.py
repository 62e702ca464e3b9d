"""Where a mistake is tried: tests run in forked processes in a copy of the checkout, and nothing outlives a trial.

Whatever a trial starts and loses falls to the process above it, up to the runner, which ends it when the trial is over.
A trial whose runner dies is interrupted, so that its fixtures shut down what they have.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

from tests.mutants.listing import ROOT, Mutant

COPIED = ("rayctsl", "serve", "tests", "configs", "pyproject.toml", "k8s", "Makefile", "README.md", "docs")
LIMIT_SECONDS = 300.0
CAUGHT, SURVIVED = "caught", "SURVIVED"
OUTCOMES = {0: SURVIVED, 1: CAUGHT}  # by pytest's exit code; any other is a mutant that cannot be judged
PREFIX = "rayctsl-mutants-"
DIE_WITH_PARENT, TAKE_ORPHANS = 1, 36  # of prctl(2)


class Bench:
    """A copy of the checkout."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, folder / name)

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()


class Trial:
    """Tests under way on a bench, with a mistake or without."""

    def __init__(self, bench: Bench, tests: Sequence[str], mutant: Mutant | None = None, limit: float = LIMIT_SECONDS):
        self.bench, self.mutant = bench, mutant
        self.file = bench.folder / mutant.file if mutant else None
        self.text = self.file.read_text() if self.file else ""
        if self.file and mutant:
            self.file.write_text(self.text.replace(mutant.old, mutant.new))
        self.process = get_context("fork").Process(target=_run_pytest, args=(bench.folder, tests))
        self.process.start()
        self.started, self.limit = time.monotonic(), limit

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def over(self) -> bool:
        return not self.process.is_alive() or self.seconds > self.limit

    def end(self) -> str:
        """The outcome; the bench is as it was before."""
        hangs = self.process.is_alive()
        if hangs:
            _interrupt(self.process.pid)
            self.process.join(20)
            self.process.kill()
        self.process.join()
        if self.file:
            self.file.write_text(self.text)
        if hangs:
            return f"{CAUGHT} (it hangs)"
        code = self.process.exitcode
        return OUTCOMES.get(-1 if code is None else code, f"NOT JUDGED (pytest ends with {code})")


def _interrupt(pid: int | None) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid or 0, signal.SIGINT)


def _run_pytest(folder: Path, tests: Sequence[str]) -> None:
    import pytest

    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _ask_kernel(DIE_WITH_PARENT, signal.SIGINT)
    _ask_kernel(TAKE_ORPHANS, 1)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # files change faster than their times tell
    with open(folder / "said.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that were imported ahead
    os._exit(pytest.main(["-q", "-x", "--no-header", "--durations=1", *quiet, *tests]))


def _ask_kernel(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


@contextmanager
def place_for_benches() -> Iterator[Path]:
    """A folder that is gone in the end; those of killed runners are swept away first."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}[0-9]*-*"):
        runner = left.name.removeprefix(PREFIX).split("-")[0]
        if runner.isdigit() and not Path("/proc", runner).exists():
            shutil.rmtree(left, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _ask_kernel(TAKE_ORPHANS, 1)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def end_orphans(trials: Collection[Trial]) -> None:
    """Kill what trials that are over have left: it is ours now, and no trial's own process."""
    keep = {trial.process.pid for trial in trials}
    while lost := [int(pid) for pid in _children() if int(pid) not in keep]:
        for pid in lost:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def import_ahead() -> None:
    """What every test imports and no mutant changes, once for all trials; nothing of our own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in (
        "fastapi",
        "httpx",
        "hypothesis.strategies",
        "numpy",
        "pyarrow.parquet",
        "pytest",
        "sqlalchemy",
        "torch",
    ):
        importlib.import_module(name)
