"""Pictures by their path: imported once, again when they change, under the folder's name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rayctsl.data.library import open_dataset
from rayctsl.data.names import MARK, check_dataset
from rayctsl.data.pictures import _mark, dataset_name, find_dataset
from rayctsl.data.roots import data_root, open_root
from tests.stripes import CLASSES, write_pictures


@pytest.fixture
def pictures(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path / "data"))
    return write_pictures(tmp_path / "My Pictures", count=20, side=12, colour=False)


def stored() -> list[str]:
    return open_root(data_root()).names()


def test_a_folder_is_imported_once_and_again_when_it_changes(pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    first = find_dataset(str(pictures))
    assert (first.name, first.train.info.name) == ("my-pictures", "my-pictures")
    assert first.train.info.class_names == tuple(sorted(CLASSES))
    assert len(first.train) + len(first.test) == 20
    assert first.train.info.shape == (12, 12, 1)
    files = [first.train.path, first.train.path.stat().st_mtime_ns]
    for again in (find_dataset(str(pictures)), find_dataset(f"./{pictures.name}")):
        assert [again.train.path, again.train.path.stat().st_mtime_ns] == files
    shutil.copy(pictures / "rows/000.jpg", pictures / "rows/more.jpg")
    assert len(find_dataset(str(pictures)).train) + len(find_dataset(str(pictures)).test) == 21
    assert [name.partition(MARK)[0] for name in stored()] == ["my-pictures"] * 2


def test_names_that_are_taken_and_paths_that_are_none(pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    os.rename(pictures, "digits")
    assert find_dataset("./digits").name == "my-digits"  # `digits` is embedded
    assert find_dataset("digits").train.info.class_names != tuple(sorted(CLASSES))
    os.rename("digits", "mine")
    with pytest.raises(ValueError, match=r"'mine' is unknown.* write \./mine"):
        check_dataset("mine")
    with pytest.raises(ValueError, match=r"there is no folder or file \./nothing"):
        find_dataset("./nothing")
    assert dataset_name(Path("/…")) == "pictures"


@pytest.mark.parametrize("name", ["mine", "mine-"])
def test_the_mark_of_a_name_is_not_seen_and_does_not_change_batches(name, pictures):
    """An owner's dataset in a service is trained on as the same one under the bare name."""
    from rayctsl.data.importing import import_dataset

    import_dataset(name, pictures)
    import_dataset(f"{name}{MARK}0a1b2c3d", pictures)
    bare, owned = open_dataset(name), open_dataset(f"{name}{MARK}0a1b2c3d")
    assert bare.name == owned.name == owned.train.info.name == name
    assert bare.train.info.checksum == owned.train.info.checksum


def test_a_picture_that_was_painted_over_is_another_one_though_as_large(tmp_path: Path) -> None:
    picture = tmp_path / "cat" / "0.bmp"
    picture.parent.mkdir()
    picture.write_bytes(b"before")
    os.utime(picture, ns=(10**18, 10**18))
    first = _mark(tmp_path)
    assert _mark(tmp_path) == first
    picture.write_bytes(b"behind")
    os.utime(picture, ns=(10**18, 10**18 + 1))
    assert _mark(tmp_path) != first


def test_pictures_in_linked_folders_are_seen_to_change(tmp_path: Path) -> None:
    pictures = tmp_path / "linked"
    pictures.mkdir()
    for kind in write_pictures(tmp_path / "real", count=20, side=12).iterdir():
        (pictures / kind.name).symlink_to(kind)
        (kind / "around").symlink_to(tmp_path)  # is not followed
    first = _mark(pictures)
    assert _mark(pictures) == first
    picture = next((tmp_path / "real").rglob("*.jpg"))
    os.utime(picture, ns=(10**18, 10**18))
    second = _mark(pictures)
    picture.rename(picture.with_name("another.jpg"))
    assert len({first, second, _mark(pictures)}) == 3


def test_a_linked_picture_is_seen_to_change_and_a_broken_link_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYCTSL_DATA", str(tmp_path / "data"))
    pictures = write_pictures(tmp_path / "mine", count=20, side=12)
    elsewhere = tmp_path / "elsewhere.jpg"
    shutil.copy(pictures / "rows/000.jpg", elsewhere)
    (pictures / "rows/link.jpg").symlink_to(elsewhere)
    first = _mark(pictures)
    os.utime(elsewhere, ns=(10**18, 10**18))
    assert _mark(pictures) != first
    elsewhere.unlink()
    with pytest.raises(ValueError, match=r"1 image cannot be read: rows/link\.jpg"):
        find_dataset(str(pictures))


def test_what_is_no_picture_changes_nothing_but_a_list_of_them_does(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "mine", count=20, side=12)
    first = _mark(pictures)
    (pictures / ".DS_Store").write_text("what some systems put beside pictures")
    assert _mark(pictures) == first
    files = sorted(file.relative_to(pictures).as_posix() for file in pictures.rglob("*.jpg"))
    for file in files:
        (pictures / file).rename(pictures / Path(file).name)
    marks = set()
    for time, kinds in enumerate(("ab", "ba"), 10**18):
        rows = [f"{Path(file).name},{kinds[n % 2]}" for n, file in enumerate(files)]
        (pictures / "labels.csv").write_text("\n".join(["FILE_NAME,CATEGORY", *rows]))
        os.utime(pictures / "labels.csv", ns=(time, time))
        marks.add(_mark(pictures))
    assert len(marks) == 2
