"""A dataset in Meta-Album's format (Ullah et al., 2022): labels.csv, info.json and a folder of images.

Micro, Mini and Extended differ in how much they hold, not in their layout. `info.json` names the columns of
`labels.csv`; the images are in `images/` or beside the list.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

LABELS, INFO = "labels.csv", "info.json"
COLUMNS = ("image_column_name", "FILE_NAME"), ("category_column_name", "CATEGORY")  # keys of info.json, their default


def album_files(folder: Path) -> dict[str, list[Path]]:
    """The image files of every class; refuses a list that names what is not there."""
    name_column, class_column = _columns(folder)
    images = folder / "images" if (folder / "images").is_dir() else folder
    classes: dict[str, list[Path]] = {}
    with (folder / LABELS).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        if lacking := [column for column in (name_column, class_column) if column not in (rows.fieldnames or ())]:
            raise ValueError(f"{folder / LABELS} has no column {lacking[0]!r}")
        for number, row in enumerate(rows, 2):
            image = images / (row[name_column] or "").strip()
            if image.parent != images or not image.is_file():
                raise ValueError(f"{folder / LABELS}, line {number}: there is no image {image.name!r} in {images}")
            classes.setdefault((row[class_column] or "").strip(), []).append(image)
    if not classes:
        raise ValueError(f"{folder / LABELS} lists no images")
    return {name: sorted(files) for name, files in classes.items()}


def _columns(folder: Path) -> tuple[str, str]:
    info = {}
    if (folder / INFO).is_file():
        try:
            info = json.loads((folder / INFO).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"{folder / INFO} is not JSON ({error})") from None
    first, second = (str(info.get(key, default)) for key, default in COLUMNS)
    return first, second
