"""Which files below a folder are taken for images."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.jobs.classify import find_images


def test_images_below_a_folder_in_order_and_nothing_hidden(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/c.PNG", "a/.c.png", "._b.jpg", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = list(find_images([str(tmp_path), "named anyway.txt"]))
    assert found == [f"{tmp_path}/a/c.PNG", f"{tmp_path}/b.jpg", "named anyway.txt"]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no images"):
        list(find_images([str(tmp_path)]))
