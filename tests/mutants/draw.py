"""`python -m tests.mutants.draw 100 --seed 1`: what does the suite do with mistakes that nobody has thought of?

Mistakes are drawn by chance from all that could be made (`mistakes.py`), from a file the more often the longer it is,
and each is tried with tests that run its line, as `make coverage` has noted. Who survives is a question to a reader:
either it changes nothing that matters, or a test is missing, and then it belongs on the list.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from coverage import CoverageData

from tests.mutants.__main__ import outcomes
from tests.mutants.bench import CAUGHT, SURVIVED, Bench, import_ahead, place_for_benches
from tests.mutants.listing import ROOT, Mutant
from tests.mutants.mistakes import Mistake, changes_something, mistakes_in

NOTED = ROOT / ".coverage"
MOST_TESTS = 25  # of a line that half of the suite runs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.draw", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, help="mistakes to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="mistakes side by side")
    options = parser.parse_args(arguments)
    files = sorted([*(ROOT / "rayctsl").rglob("*.py"), *(ROOT / "serve").rglob("*.py")])
    newer = [path for path in files if not NOTED.exists() or path.stat().st_mtime > NOTED.stat().st_mtime]
    if newer:
        print(f"{newer[0].relative_to(ROOT)} is newer than what is known of its tests: make coverage", file=sys.stderr)
        return 2
    noted = CoverageData(str(NOTED))
    noted.read()
    drawn = draw(files, options.count, options.seed, noted)
    with place_for_benches() as folder:
        import_ahead()
        try_them(drawn, [Bench(folder / str(number)) for number in range(options.jobs)])
    return 0


def draw(files: Sequence[Path], count: int, seed: int, noted: CoverageData) -> list[Mutant]:
    random, sizes = Random(seed), [path.stat().st_size for path in files]
    drawn: dict[Mutant, None] = {}
    while len(drawn) < count:
        (path,) = random.choices(files, sizes)
        if possible := mistakes_in(path):
            kind = random.choice(sorted({mistake.kind for mistake in possible}))
            mistake = random.choice([mistake for mistake in possible if mistake.kind == kind])
            if changes_something(path.read_text(), mistake):
                drawn[as_mutant(path, mistake, noted)] = None
    return list(drawn)


def as_mutant(path: Path, mistake: Mistake, noted: CoverageData) -> Mutant:
    file, text = path.relative_to(ROOT), path.read_text()
    room = "/".join(file.parts[:-1][:2])
    breaks = f"{file}:{mistake.line}: {mistake.told(text)}"
    return Mutant(room, breaks, str(file), text, mistake.made_in(text), who_runs(path, mistake.line, noted))


def who_runs(path: Path, line: int, noted: CoverageData) -> tuple[str, ...]:
    """Tests that run the line, those of the file's own first. Where no test function does, as in fixtures and other
    processes: all tests of the file."""
    name = path.stem.strip("_")
    contexts = noted.contexts_by_lineno(str(path)).get(line, [])
    running = sorted({test for context in contexts if (test := as_test(context))}, key=lambda test: name not in test)
    own = [str(each.relative_to(ROOT)) for each in sorted((ROOT / "tests").rglob(f"test_*{name}.py"))]
    return (*(running[:MOST_TESTS] or own or [f"tests/{path.parent.name}"]), "-m", "not long")


@cache
def as_test(context: str) -> str | None:
    """tests.room.test_file.test_it -> tests/room/test_file.py::test_it"""
    *module, test = context.split(".")
    file = Path(*module).with_suffix(".py") if module[:1] == ["tests"] else None
    found = file is not None and (ROOT / file).exists() and f"\ndef {test}(" in (ROOT / file).read_text()
    return f"{file}::{test}" if found else None


def try_them(drawn: Sequence[Mutant], benches: Sequence[Bench]) -> None:
    tried, caught = Counter[str](), Counter[str]()
    for trial, outcome in outcomes(drawn, benches):
        assert trial.mutant
        print(f"{outcome:8} {trial.seconds:5.1f} s  {trial.mutant.breaks}", flush=True)
        for room in (trial.mutant.room, "all"):
            tried[room] += outcome.startswith((CAUGHT, SURVIVED))
            caught[room] += outcome.startswith(CAUGHT)
    rows = [f"| {room} | {tried[room]} | {caught[room]} |" for room in [*sorted(tried.keys() - {"all"}), "all"]]
    print("\n".join(["| room | drawn | caught |", "|---|---|---|", *rows]))


if __name__ == "__main__":
    sys.exit(main())
