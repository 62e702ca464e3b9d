"""The table of `python -m rayctsl.data list`: everything known, and what of it the data root holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayctsl.data.catalog import CATALOG
from rayctsl.data.names import EMBEDDED_NAMES
from rayctsl.data.prepare import IMPORTED
from rayctsl.data.roots import data_root, open_root

if TYPE_CHECKING:
    from rayctsl.data.roots import Root

HEADER = ("name", "classes", "train", "test", "size", "state", "on disk")
NUMBERS = (1, 2, 3, 4, 6)  # columns that are set to the right


def table(root: str | None = None) -> str:
    """Catalog, embedded and imported datasets, one line each, and where the root is."""
    from rayctsl.data.embedded import EMBEDDED

    place = open_root(data_root(root))
    there = place.names()
    rows: list[tuple[str, ...]] = [HEADER]
    for name, entry in CATALOG.items():
        if name not in there:
            shape = (entry.size, entry.size, entry.channels)
            rows.append(_row(name, entry.num_classes, entry.num_train, entry.num_test, shape, "not prepared"))
    for name, made in EMBEDDED.items():
        if name not in there:
            state = "embedded, made on first use"
            rows.append(_row(name, made.num_classes, made.num_train, made.num_test, made.shape, state))
    rows += [_held(name, place) for name in there]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.rjust(widths[c]) if c in NUMBERS else cell.ljust(widths[c]) for c, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", f"data root: {place.where}"])


def _held(name: str, place: Root) -> tuple[str, ...]:
    try:
        train, test, num_bytes = place.describe(name)
    except ValueError:
        return name, "", "", "", "", "damaged, see check", ""
    state = "embedded" if name in EMBEDDED_NAMES else "prepared"
    state = train.source if train.source.startswith(IMPORTED) else state
    return _row(name, train.num_classes, train.count, test.count, train.shape, state, f"{num_bytes / 2**20:,.1f} MiB")


def _row(
    name: str,
    num_classes: int,
    num_train: int | None,
    num_test: int,
    shape: tuple[int, int, int],
    state: str,
    on_disk: str = "",
) -> tuple[str, ...]:
    side = f"{shape[0]} {'grey' if shape[2] == 1 else 'colour'}"
    return name, str(num_classes), f"{num_train:,}" if num_train else "-", f"{num_test:,}", side, state, on_disk
