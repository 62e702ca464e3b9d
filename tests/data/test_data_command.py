"""The command: what it prints, and 0, 1, 2 or 130 with one line and no traceback."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from rayctsl.commands.data import main
from rayctsl.data.catalog import CATALOG
from rayctsl.data.sources import download


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture
def pack(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    images = rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(path, x_train=images, y_train=np.arange(40) % 4, x_test=images[:8], y_test=np.arange(8) % 4)
    return str(path)


def run(*arguments: str) -> int:
    try:
        return main(list(arguments))
    except SystemExit as stop:
        return stop.code


def refused(capsys, code: int, *arguments: str) -> str:
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("rayctsl.data")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    return captured.err


def test_import_check_show_list(root, pack, tmp_path, capsys):
    assert run("import", "mine", "--from", pack, "--data-root", root) == 0
    assert capsys.readouterr().out == f"mine: 40 + 8 images of 32 x 32, 4 classes, in {root}/mine\n"
    assert run("check", "--data-root", root) == 0
    assert capsys.readouterr().out == "mine: good, 40 + 8 images, 4 classes\n"
    assert run("show", "mine", "--data-root", root, "--out", str(tmp_path / "new" / "sheet.png")) == 0
    with Image.open(tmp_path / "new" / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 800
        assert len(np.unique(np.asarray(sheet))) > 200
    capsys.readouterr()
    assert run("list", "--data-root", root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"data root: {root}"
    mine = next(line for line in lines if line.startswith("mine"))
    assert mine.split() == ["mine", "4", "40", "8", "32", "colour", "imported", "from", "mine.npz", "0.1", "MiB"]
    assert any(line.split()[:2] == ["cub", "200"] and "not prepared" in line for line in lines)
    assert any(line.startswith("digits") and "embedded" in line for line in lines)


def test_check_finds_damage(root, pack, capsys):
    run("import", "mine", "--from", pack, "--data-root", root)
    path = f"{root}/mine/train.arrow"
    with np.load(pack) as arrays, open(path, "r+b") as file:
        content = file.read()
        file.seek(content.index(arrays["x_train"][5].tobytes()) + 100)
        file.write(b"\0\0\0\0")
    capsys.readouterr()
    assert run("check", "mine", "--data-root", root) == 1
    assert "train: 1 damaged images: 5" in capsys.readouterr().out
    with open(path, "r+b") as file:
        file.truncate(1000)
    run("import", "other", "--from", pack, "--data-root", root)
    capsys.readouterr()
    assert run("check", "--data-root", root) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "train.arrow is not a readable dataset file" in lines[0]
    assert lines[1] == "other: good, 40 + 8 images, 4 classes"
    assert run("list", "--data-root", root) == 0
    assert "damaged, see check" in capsys.readouterr().out


def test_bad_input_is_2_and_one_line(root, pack, tmp_path, capsys):
    def line(*arguments: str) -> str:
        return refused(capsys, 2, *arguments, "--data-root", root)

    assert "did you mean 'cub'" in line("prepare", "cubs")
    assert "usable size" in line("prepare", "cub@x")
    assert "does not exist" in line("import", "mine", "--from", str(tmp_path / "nowhere"))
    assert "not a positive number" in line("import", "mine", "--from", pack, "--size", "0")
    assert "holds no dataset" in line("check")
    assert "not prepared" in line("check", "cub")
    assert "not prepared" in line("show", "cub", "--out", "x.png")
    assert "--from" in line("import", "mine")
    assert "invalid choice" in refused(capsys, 2, "paint")
    assert "required" in refused(capsys, 2)


def test_failure_is_1_and_one_line(root, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(download, "FIRST_PAUSE_SECONDS", 0.0)
    entry = CATALOG["cub"]
    dead = dataclasses.replace(entry.files[0], url="http://127.0.0.1:9/CUB_200_2011.tgz")
    monkeypatch.setitem(CATALOG, "cub", dataclasses.replace(entry, files=(dead,)))
    message = refused(capsys, 1, "prepare", "cub", "--data-root", root)
    assert "127.0.0.1:9" in message
    assert f"{root}/_downloads/cub/CUB_200_2011.tgz" in message
    assert "ILSVRC2012_img_train.tar" in refused(capsys, 1, "prepare", "imagenet_1", "--data-root", root)
    (tmp_path / "file").write_text("no folder")
    said = refused(capsys, 2, "prepare", "cub", "--data-root", str(tmp_path / "file"))
    assert "cannot be written" in said


def test_prepare_from_the_publishers_files(publisher, root, capsys, monkeypatch):
    made = publisher("cub")
    monkeypatch.setitem(CATALOG, "cub", made.write())
    options = ["--data-root", root, "--downloads", str(made.downloads), "--workers", "1"]
    assert run("prepare", "cub", "cub@20", *options) == 0
    assert capsys.readouterr().out == (
        f"cub: 9 + 3 images of 84 x 84, 3 classes, in {root}/cub\n"
        f"cub@20: 9 + 3 images of 20 x 20, 3 classes, in {root}/cub@20\n"
    )
    (made.folder / "CUB_200_2011.tgz").unlink()
    assert run("prepare", "cub", *options) == 0  # there already: nothing is read again
    assert run("check", "cub", "cub@20", "--data-root", root) == 0


def test_prepare_does_not_overwrite_an_import(root, pack, capsys):
    run("import", "cub", "--from", pack, "--data-root", root, "--published")
    capsys.readouterr()
    assert "'cub' was imported from mine.npz" in refused(capsys, 2, "prepare", "cub", "--data-root", root)


def test_help_is_instant():
    """No numpy, no torch, no image library is loaded to print the help."""
    code = "import sys, rayctsl.commands.data as m; m.build_parser().format_help(); "
    code += "print([n for n in ('numpy', 'torch', 'PIL', 'pyarrow', 'ray') if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
    shown = subprocess.run([sys.executable, "-m", "rayctsl.data", "--help"], capture_output=True, text=True, check=True)
    assert "prepare" in shown.stdout
