"""`make mutants`: does a test go red when the code is wrong?

Every `[[mutant]]` in this folder's TOML files, one file a room, is a small realistic mistake: a file, a text in it,
what is written in its place, and the tests that must notice. First those tests must pass on the code as it is; then
each mistake is made in a copy of the checkout, one at a time, and its tests must fail. A text that is no longer there,
or there twice, ends the run at once: whoever changes a line takes its mutant along. What was tried on the same code
before is not tried again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from tests.mutants.bench import (
    CAUGHT,
    LIMIT_SECONDS,
    SURVIVED,
    Bench,
    Trial,
    end_orphans,
    import_ahead,
    place_for_benches,
)
from tests.mutants.listing import Mutant, as_table, read_mutants
from tests.mutants.memory import Memory


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
    with place_for_benches() as folder:
        return try_all(folder, mutants, options.jobs)


def try_all(folder: Path, mutants: Sequence[Mutant], jobs: int) -> int:
    memory = Memory()
    judged = [mutant for mutant in mutants if not mutant.equivalent]
    fresh = [mutant for mutant in judged if not _is_judged(memory.outcome(mutant))]
    if fresh:
        import_ahead()
        benches = [Bench(folder / str(number)) for number in range(min(jobs, len(fresh)))]
        if not pass_without(benches[0], fresh, memory):
            return 2
        for trial, outcome in outcomes(fresh, benches):
            assert trial.mutant
            memory.note(trial.mutant, outcome)
            tests = ", ".join(trial.mutant.tests)
            print(
                f"{outcome:8} {trial.seconds:5.1f} s  {trial.mutant.room}: {trial.mutant.breaks}  [{tests}]", flush=True
            )
            if not _is_judged(outcome):
                print(trial.bench.said()[-2000:], file=sys.stderr)
    print(score(mutants, memory))
    return 0 if all((memory.outcome(mutant) or "").startswith(CAUGHT) for mutant in judged) else 1


def pass_without(bench: Bench, mutants: Sequence[Mutant], memory: Memory) -> bool:
    """Whether the mutants' tests pass on the code as it is."""
    tests = sorted({test for mutant in mutants for test in mutant.tests} - set(memory.passed))
    if not tests:
        return True
    trial = Trial(bench, tests, limit=4 * LIMIT_SECONDS)
    try:
        trial.process.join(trial.limit)
    finally:
        outcome = trial.end()
        end_orphans([])
    if outcome != SURVIVED:
        print(bench.said(), "\nthe tests fail without any mutant", sep="", file=sys.stderr)
        return False
    memory.note_passed(tests)
    return True


def outcomes(mutants: Sequence[Mutant], benches: Sequence[Bench]) -> Iterator[tuple[Trial, str]]:
    """Every mutant's trial as it ends, as many side by side as there are benches."""
    waiting, idle, running = deque(mutants), list(benches), list[Trial]()
    try:
        while waiting or running:
            while waiting and idle:
                mutant = waiting.popleft()
                running.append(Trial(idle.pop(), mutant.tests, mutant))
            wait([trial.process.sentinel for trial in running], timeout=0.5)
            for trial in [trial for trial in running if trial.over()]:
                outcome = trial.end()
                running.remove(trial)
                end_orphans(running)
                idle.append(trial.bench)
                yield trial, outcome
    finally:
        for trial in running:
            trial.end()
        end_orphans([])


def score(mutants: Sequence[Mutant], memory: Memory) -> str:
    """How many were caught, by room."""
    tried, caught, equivalent = Counter[str](), Counter[str](), Counter[str]()
    for mutant in mutants:
        for room in (mutant.room, "all"):
            equivalent[room] += bool(mutant.equivalent)
            tried[room] += not mutant.equivalent
            caught[room] += (memory.outcome(mutant) or "").startswith(CAUGHT)
    rooms = [*sorted({mutant.room for mutant in mutants}), "all"]
    rows = [f"| {room} | {tried[room]} | {caught[room]} | {equivalent[room]} |" for room in rooms]
    return "\n".join(["| room | tried | caught | equivalent |", "|---|---|---|---|", *rows])


def _is_judged(outcome: str | None) -> bool:
    return outcome is not None and outcome.startswith((CAUGHT, SURVIVED))


if __name__ == "__main__":
    sys.exit(main())
