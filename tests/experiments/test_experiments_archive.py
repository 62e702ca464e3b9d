"""Cells as one file: what is taken along, what is taken over, and what is refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from rayctsl.experiments.archive import pack_cells, unpack_cells
from rayctsl.storage import Storage


def folder(root: Path, *names: str) -> Storage:
    for name in names:
        path = root / "cells" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"{name}"')
    return Storage(root)


def test_a_training_is_taken_along_when_it_has_been_tested(tmp_path):
    here = folder(tmp_path / "a", "tune-x-beta1.json", "train-x-k4-seed0.json", "test-x-k4-seed0-at8-rings-0.json")
    folder(tmp_path / "a", "train-x-k4-seed1.json", "train-x-k40-seed0.json", "leftover.tmp")
    folder(tmp_path / "a", "test-x-k4-seed10-at8-rings-0.json")  # of seed 10, not of seed 1
    (tmp_path / "cells.tar.xz").write_bytes(pack_cells({"a": here}))
    there = Storage(tmp_path / "b")
    assert unpack_cells(tmp_path / "cells.tar.xz", {"a": there}) == 4
    tests = ["test-x-k4-seed0-at8-rings-0.json", "test-x-k4-seed10-at8-rings-0.json"]
    kept = [*tests, "train-x-k4-seed0.json", "tune-x-beta1.json"]
    assert sorted(there.names("cells")) == kept
    assert pack_cells({"a": here}) == pack_cells({"a": there})


def test_equal_cells_give_equal_bytes_in_whatever_order_their_folders_come(tmp_path):
    first, second = folder(tmp_path / "a", "tune-x-beta1.json"), folder(tmp_path / "b", "tune-y-beta1.json")
    assert pack_cells({"a": first, "b": second}) == pack_cells({"b": second, "a": first})


def test_what_is_there_stays(tmp_path):
    (tmp_path / "cells.tar.xz").write_bytes(pack_cells({"a": folder(tmp_path / "a", "tune-x-beta1.json")}))
    there = Storage(tmp_path / "b")
    there.write("cells/tune-x-beta1.json", b"newer")
    assert unpack_cells(tmp_path / "cells.tar.xz", {"a": there, "c": Storage(tmp_path / "c")}) == 0
    assert there.read("cells/tune-x-beta1.json") == b"newer"


def test_nothing_is_written_outside_of_cells(tmp_path):
    with tarfile.open(tmp_path / "cells.tar.xz", "w:xz") as archive:
        for name in (
            "a/cells/../../escaped.json",
            "a/escaped.json",
            "../escaped.json",
            "a/cells/deep/er.json",
            "b/cells/x",
        ):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("a/cells/link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert unpack_cells(tmp_path / "cells.tar.xz", {"a": Storage(tmp_path / "a")}) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == ["cells.tar.xz"]


def test_another_file_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "cells.tar.xz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"cells\.tar\.xz does not hold cells"):
        unpack_cells(tmp_path / "cells.tar.xz", {})
