"""Which datasets there are, by name alone: a misspelt name is refused before numpy, pyarrow or torch are imported.

`library` opens what is found here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.data.catalog import CATALOG, Reference, closest_name, parse_reference
from rayctsl.data.roots import data_root, open_root

if TYPE_CHECKING:
    from rayctsl.data.roots import Root

MARK = "--"
EMBEDDED_NAMES = (
    *("latin", "greek", "cyrillic", "syllabics", "operators", "dominoes"),
    *("shapes", "textures", "quilts", "flags", "fractals", "sketches"),
    *("georgian", "digits", "symbols", "armenian", "tilings", "plants"),  # the targets
)


class NotPrepared(ValueError):
    """The catalog knows a dataset that the data root does not have."""


def check_name(name: str, root: str | None = None) -> None:
    """Refuse a name that `open_dataset` will not find, without opening or making anything."""
    reference = parse_reference(name)
    place = open_root(data_root(root))
    if reference.name not in known_names(place):
        raise not_found(reference, place)
    held = {reference.folder, reference.name} & set(place.names())
    if not held and reference.name not in EMBEDDED_NAMES:
        raise not_found(reference, place)


def check_dataset(name_or_path: str, root: str | None = None) -> None:
    """Refuse what `find_dataset` will not find, without opening or making anything."""
    if is_path(name_or_path):
        if not Path(name_or_path).expanduser().exists():
            raise ValueError(f"there is no folder or file {name_or_path}")
        return
    try:
        check_name(name_or_path, root)
    except ValueError as error:
        if Path(name_or_path).is_dir():
            raise ValueError(f"{error} For the pictures in that folder write ./{name_or_path}") from None
        raise


def shown_name(stored: str) -> str:
    """What people call a dataset: the name without the mark, which is the last. Example: shown_name("a--1b") == "a" """
    return stored.rsplit(MARK, 1)[0]


def is_path(text: str) -> bool:
    """Names of datasets have neither slashes nor dots."""
    return "/" in text or "." in text or text.startswith("~")


def known_names(place: Root) -> list[str]:
    """Everything that can be opened or prepared: catalog, embedded, and what the root holds."""
    return sorted({*CATALOG, *EMBEDDED_NAMES, *place.names()})


def not_found(reference: Reference, place: Root) -> ValueError:
    """What to tell of a dataset that is not there."""
    if reference.name in CATALOG:
        hint = f"run python -m rayctsl.data prepare {reference}"
        return NotPrepared(f"dataset '{reference}' is known but not prepared: {hint}")
    guess = closest_name(reference.name, known_names(place))
    hint = f"did you mean '{guess}'?" if guess else "python -m rayctsl.data list shows all"
    return ValueError(f"dataset '{reference.name}' is unknown; {hint}")
