"""`make mutants`: does a test go red when the code is wrong?

Every `[[mutant]]` in this folder's TOML files, one file a room, is a small realistic mistake: a file, a text in it,
what is written in its place, and the tests that must notice. First those tests must pass on the code as it is; then
each mistake is made in a copy of the checkout, one at a time, and its tests must fail. A text that is no longer there,
or there twice, ends the run at once: whoever changes a line takes its mutant along.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("rayctsl", "serve", "tests", "configs", "pyproject.toml", "k8s", "Makefile")
LIMIT_SECONDS = 300.0
CAUGHT, SURVIVED = "caught", "SURVIVED"
OUTCOMES = {0: SURVIVED, 1: CAUGHT}  # by pytest's exit code; any other is a mutant that cannot be judged


@dataclass(frozen=True)
class Mutant:
    """One mistake, and who must notice it. `equivalent` says why nobody can."""

    room: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    def problem(self) -> str | None:
        """Why the list and the code do not fit together any more."""
        path = ROOT / self.file
        found = path.read_text().count(self.old) if path.exists() else 0
        if found != 1:
            return f"{self.room}: {self.breaks}: {self.file} has the old text {found} times, not once: {self.old!r}"
        lost = [test for test in self.tests if not _exists(test)]
        return f"{self.room}: {self.breaks}: there is no test {lost[0]}" if lost else None


def _exists(test: str) -> bool:
    file, *names = test.split("::")
    text = (ROOT / file).read_text() if (ROOT / file).exists() else None
    return text is not None and all(name.split("[")[0] in text for name in names)


def read_mutants(rooms: Sequence[str]) -> list[Mutant]:
    found = []
    for path in sorted(HERE.glob("*.toml")):
        if not rooms or path.stem in rooms:
            raw = tomllib.loads(path.read_text())["mutant"]
            found += [Mutant(path.stem, **{**one, "tests": tuple(one.get("tests", ()))}) for one in raw]
    return found


class Bench:
    """A copy of the checkout where tests run in forked processes, so that torch is imported once."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, folder / name)

    def judge(self, mutant: Mutant) -> str:
        path = self.folder / mutant.file
        text = path.read_text()
        path.write_text(text.replace(mutant.old, mutant.new))
        try:
            return self.run(mutant.tests)
        finally:
            path.write_text(text)

    def run(self, tests: Sequence[str], limit: float = LIMIT_SECONDS) -> str:
        process = get_context("fork").Process(target=_run_pytest, args=(self.folder, tests))
        process.start()
        process.join(limit)
        return _outcome(process)

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()


def _outcome(process: BaseProcess) -> str:
    if process.exitcode is None:
        process.kill()
        process.join()
        return "caught (it hangs)"
    return OUTCOMES.get(process.exitcode, f"NOT JUDGED (pytest ends with {process.exitcode})")


def _run_pytest(folder: Path, tests: Sequence[str]) -> None:
    import pytest

    os.setsid()  # a Ray of its own goes with it
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # files change faster than their times tell
    with open(folder / "said.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os._exit(pytest.main(["-q", "-x", "--no-header", "--durations=0", *tests]))


def _import_ahead() -> None:
    """What every test imports and no mutant changes; nothing of our own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in ("numpy", "pyarrow.parquet", "pydantic", "pytest", "torch"):
        importlib.import_module(name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rooms", nargs="*", help="rooms to try; all when none is named")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose description has this text")
    parser.add_argument("--check", action="store_true", help="only see whether list and code fit together")
    parser.add_argument("--list", action="store_true", help="print docs/MUTANTS.md: every mistake and who catches it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants side by side")
    options = parser.parse_args(arguments)
    mutants = [mutant for mutant in read_mutants(options.rooms) if options.only in mutant.breaks]
    problems = [problem for mutant in mutants if (problem := mutant.problem())]
    if problems or not mutants:
        print("\n".join(problems) or "no such mutants", file=sys.stderr)
        return 2
    if options.check:
        print(f"{len(mutants)} mutants fit the code")
        return 0
    if options.list:
        print(as_table(mutants))
        return 0
    _import_ahead()
    with tempfile.TemporaryDirectory(prefix="rayctsl-mutants-") as folder:
        return try_all(Path(folder), mutants, options.jobs)


def as_table(mutants: Sequence[Mutant]) -> str:
    """The list as a page of Markdown."""
    rooms = ", ".join(f"{room} {count}" for room, count in sorted(Counter(each.room for each in mutants).items()))
    lines = ["# Seeded mistakes", "", "Written by `python -m tests.mutants --list`; `make mutants` tries them all.", ""]
    lines += [f"{len(mutants)} mistakes: {rooms}.", ""]
    lines += ["| room | mistake | in | caught by |", "|---|---|---|---|"]
    for each in mutants:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in each.tests)
        lines.append(f"| {each.room} | {each.breaks} | `{each.file}` | {tests or 'nobody: ' + each.equivalent} |")
    return "\n".join(lines)


def try_all(folder: Path, mutants: Sequence[Mutant], jobs: int) -> int:
    judged = [mutant for mutant in mutants if not mutant.equivalent]
    bench = Bench(folder / "first")
    if bench.run(sorted({test for mutant in judged for test in mutant.tests}), 4 * LIMIT_SECONDS) != SURVIVED:
        print(bench.said(), "\nthe tests fail without any mutant", sep="", file=sys.stderr)
        return 2
    caught = 0
    with ProcessPoolExecutor(jobs, get_context("fork"), _take_bench, (folder,)) as pool:
        for mutant, (outcome, seconds, said) in zip(judged, pool.map(_judge, judged), strict=True):
            caught += outcome.startswith(CAUGHT)
            tests = ", ".join(mutant.tests)
            print(f"{outcome:8} {seconds:5.1f} s  {mutant.room}: {mutant.breaks}  [{tests}]", flush=True)
            if outcome not in (CAUGHT, SURVIVED):
                print(said, file=sys.stderr)
    for mutant in mutants:
        if mutant.equivalent:
            print(f"equivalent        {mutant.room}: {mutant.breaks}  ({mutant.equivalent})")
    print(f"{caught} of {len(judged)} mutants caught ({caught / len(judged):.0%})")
    return 0 if caught == len(judged) else 1


_bench: Bench  # of this process of the pool


def _take_bench(folder: Path) -> None:
    global _bench
    _bench = Bench(folder / str(os.getpid()))


def _judge(mutant: Mutant) -> tuple[str, float, str]:
    started = time.monotonic()
    outcome = _bench.judge(mutant)
    return outcome, time.monotonic() - started, _bench.said()[-2000:]


if __name__ == "__main__":
    sys.exit(main())
