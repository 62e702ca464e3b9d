"""The coverage of every room, lines and branches together, and the least covered files of each.

`make coverage` writes the data. Ends with 1 when a room is under the bound.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from coverage import Coverage
from coverage.results import Numbers

BOUND = 85.0
ROOT = Path(__file__).parents[1]


def rooms(coverage: Coverage) -> dict[str, dict[str, Numbers]]:
    """Each file's numbers, by room: rayctsl's and serve's folders; a file beside them is of the room's own name."""
    found: dict[str, dict[str, Numbers]] = defaultdict(dict)
    for path in coverage.get_data().measured_files():
        parts = Path(path).relative_to(ROOT).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        found[room]["/".join(parts)] = coverage._analyze(path).numbers
    return found


def main() -> int:
    coverage = Coverage(config_file=str(ROOT / "pyproject.toml"))
    coverage.load()
    low = []
    for room, files in sorted(rooms(coverage).items()):
        total = sum(files.values(), Numbers())
        worst = sorted(files, key=lambda name: files[name].pc_covered)[:2]
        named = ", ".join(f"{name} {files[name].pc_covered:.0f}" for name in worst)
        size = f"{total.n_statements:5} lines  {total.n_branches:5} branches"
        print(f"{room:24} {total.pc_covered:5.1f} %  {size}  ({named})")
        low += [room] if total.pc_covered < BOUND else []
    print("under " + f"{BOUND:.0f} %: " + (", ".join(low) or "none"))
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
