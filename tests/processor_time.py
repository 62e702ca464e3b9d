"""Who takes the processor's time in a test run: `python tests/processor_time.py make test`.

Looks a few times a second at every process that has the run's mark in its environment, as all have that the command
and its tests start, whoever adopts them. What lives for less than a look is missed. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PERIOD = 0.2
TEST = b"PYTEST_CURRENT_TEST="
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = {  # what a command line has: what it is
    "stdin.readline": "pytest's workers: tests, imports and collection",
    "-m pytest": "pytest itself",
    "ray::": "Ray's workers",
    "-m serve": "services",
    "rayctsl.jobs": "services' job workers",
    "chrom": "Chromium",
    "multiprocessing": "multiprocessing",
    "ray/": "Ray's daemons",
    "mypy": "mypy",
    "ruff": "ruff",
    "rayctsl": "commands",
}


@dataclass
class Seen:
    """A process, as it was last seen."""

    line: str
    test: str
    seconds: float


def look(mark: bytes, seen: dict[tuple[str, str], Seen]) -> None:
    """Note what each process with the mark has taken so far."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            if mark not in environment:
                continue
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended, or is another user's
            continue
        test = next((value.removeprefix(TEST).decode() for value in environment if value.startswith(TEST)), "")
        seconds = (int(fields[11]) + int(fields[12])) / TICKS
        seen[folder.name, fields[19]] = Seen(line, test.partition("@")[0].partition(" (")[0], seconds)


def kind(line: str) -> str:
    return next((what for mark, what in KINDS.items() if mark in line), "others")


def report(seen: dict[tuple[str, str], Seen], tests: int = 20) -> str:
    by_kind, counts, by_test = Counter[str](), Counter[str](), Counter[str]()
    for each in seen.values():
        by_kind[kind(each.line)] += each.seconds
        counts[kind(each.line)] += 1
        by_test[each.test] += each.seconds
    by_test.pop("", None)
    lines = [f"{sum(by_kind.values()):.0f} s of processor time", "", "| s | processes | what |", "|---|---|---|"]
    lines += [f"| {seconds:.0f} | {counts[what]} | {what} |" for what, seconds in by_kind.most_common()]
    lines += ["", "| s | in processes that this test started |", "|---|---|"]
    lines += [f"| {seconds:.1f} | {test} |" for test, seconds in by_test.most_common(tests)]
    return "\n".join(lines)


def main(command: list[str]) -> int:
    seen, ended = dict[tuple[str, str], Seen](), threading.Event()
    mark = f"RAYCTSL_WATCHED_BY={os.getpid()}"

    def watch() -> None:
        while not ended.wait(PERIOD):
            look(mark.encode(), seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = subprocess.run(["env", mark, *command], check=False).returncode
    ended.set()
    watcher.join()
    print(report(seen))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
