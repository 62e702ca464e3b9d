"""Names to opened splits; folders appear whole, whoever is killed and however many make them at once."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayctsl.data.library import make_missing, open_dataset
from rayctsl.data.local_root import LocalRoot, never
from rayctsl.data.roots import data_root, open_root
from rayctsl.data.store import SplitInfo, open_split, write_split
from tests.processes import is_alive

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)


def fill(folder: Path, source: str = "", shape=(4, 4, 1)) -> None:
    for split in ("train", "test"):
        info = SplitInfo("mine", split, shape, ("a", "b"), source=source)
        write_split(folder / f"{split}.arrow", PIXELS, np.arange(6) % 2, info)


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != ".locks")


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("RAYCTSL_DATA", "/from/environment")
    assert data_root("/asked/for") == "/asked/for"
    assert data_root() == "/from/environment"
    monkeypatch.delenv("RAYCTSL_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == str(tmp_path / ".cache/rayctsl/data")


def test_embedded_is_made_once_and_again_for_a_new_version(tmp_path, monkeypatch, capsys):
    make_missing(["mine", "georgian"], str(tmp_path))
    assert "making 1 embedded dataset, once\n" in capsys.readouterr().err
    assert visible(tmp_path) == ["georgian"]
    make_missing(["mine", "georgian"], str(tmp_path))
    assert capsys.readouterr().err == "", "what is there is said to be made"
    first = open_dataset("georgian", str(tmp_path))
    inode = first.train.path.stat().st_ino
    assert first.train.path == tmp_path / "georgian" / "train.arrow"
    assert open_dataset("georgian", str(tmp_path)).train.path.stat().st_ino == inode
    monkeypatch.setattr("rayctsl.data.embedded.suite.SOURCE", "made by a later version")
    assert open_dataset("georgian", str(tmp_path)).train.path.stat().st_ino != inode


def test_embedded_by_several_processes_at_once(tmp_path):
    code = "import sys; from rayctsl.data.library import open_dataset; d = open_dataset('georgian', sys.argv[1]); "
    code += "print(len(d.train), d.train.path.stat().st_ino, d.train.info.checksum)"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate()[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len(set(answers)) == 1, "one of them saw another dataset"
    assert visible(tmp_path) == ["georgian"]


def test_sizes(tmp_path):
    LocalRoot(tmp_path).publish("mine", fill)
    assert open_dataset("mine@4", str(tmp_path)).num_classes == 2
    with pytest.raises(ValueError, match=r"mine@8 is not prepared: .* holds mine at 4 pixels"):
        open_dataset("mine@8", str(tmp_path))
    LocalRoot(tmp_path).publish("cub@4", fill)
    assert open_dataset("cub@4", str(tmp_path)).train.path.parent.name == "cub@4"
    LocalRoot(tmp_path).publish("cub", fill)
    with pytest.raises(ValueError, match="cub@84 is not prepared"):
        open_dataset("cub@84", str(tmp_path))  # the catalog's size, but here lies something of the user's


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cub", "known but not prepared: run python -m rayctsl.data prepare cub"),
        ("cub@224", "known but not prepared: run python -m rayctsl.data prepare cub@224"),
        ("cubs", "unknown; did you mean 'cub'?"),
        ("georgia", "unknown; did you mean 'georgian'?"),
        ("mines", "unknown; did you mean 'mine'?"),
        ("qqqq", "unknown; python -m rayctsl.data list shows all"),
    ],
)
def test_missing_names_get_a_helpful_sentence(name, sentence, tmp_path):
    LocalRoot(tmp_path).publish("mine", fill)
    with pytest.raises(ValueError, match=r".") as caught:
        open_dataset(name, str(tmp_path))
    assert str(caught.value).endswith(sentence)


def test_file_uri_and_home_are_local(tmp_path, monkeypatch):
    LocalRoot(tmp_path / "data").publish("mine", fill)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in (f"file://{tmp_path}/data", "~/data"):
        assert open_root(root).names() == ["mine"]


def test_failed_make_leaves_nothing(tmp_path):
    def fail(folder: Path) -> None:
        fill(folder)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        LocalRoot(tmp_path).publish("mine", fail)
    assert visible(tmp_path) == []


def test_failed_replace_keeps_the_old(tmp_path):
    place = LocalRoot(tmp_path)
    place.publish("mine", lambda folder: fill(folder, "first"))
    with pytest.raises(ValueError, match="no"):
        place.publish("mine", refuse, keep=never)
    assert place.describe("mine").train.source == "first"
    place.publish("mine", lambda folder: fill(folder, "second"))
    assert place.describe("mine").train.source == "first"
    place.publish("mine", lambda folder: fill(folder, "third"), keep=never)
    assert place.describe("mine").train.source == "third"
    assert visible(tmp_path) == ["mine"]


def test_what_cannot_be_put_in_its_place_leaves_the_old_there(tmp_path, monkeypatch):
    place, rename = LocalRoot(tmp_path), os.rename
    place.publish("mine", lambda folder: fill(folder, "first"))

    def fail(source: Path, target: Path) -> None:
        if target == tmp_path / "mine" and not source.name.endswith("-old"):
            raise OSError(errno.EIO, "the disk fails")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="the disk fails"):
        place.publish("mine", lambda folder: fill(folder, "second"), keep=never)
    assert visible(tmp_path) == ["mine"]
    assert place.describe("mine").train.source == "first"


@pytest.mark.parametrize("then", ["replaced again", "removed"])
def test_who_is_killed_between_two_renames_loses_no_dataset(then, tmp_path, monkeypatch):
    place, rename = LocalRoot(tmp_path), os.rename
    place.publish("mine", lambda folder: fill(folder, "first"))
    second = LocalRoot(tmp_path / "elsewhere").publish("mine", lambda folder: fill(folder, "second"))

    def die(source: Path, target: Path) -> None:
        if target == tmp_path / "mine":
            os._exit(9)
        rename(source, target)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "rename", die)
        place.publish("mine", lambda folder: shutil.copytree(second, folder, dirs_exist_ok=True), keep=never)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert place.fetch("mine") is None
    if then == "removed":
        place.remove("mine")
        assert visible(tmp_path) == ["elsewhere"]
    else:
        with pytest.raises(ValueError, match="no"):
            place.publish("mine", refuse, keep=never)
        assert place.describe("mine").train.source == "first"
        assert visible(tmp_path) == ["elsewhere", "mine"]


def refuse(folder: Path) -> None:
    raise ValueError("no")


def test_a_node_that_the_lock_does_not_see_may_win(tmp_path):
    def make(folder: Path) -> None:
        fill(folder, "ours")
        (tmp_path / "mine").mkdir()
        fill(tmp_path / "mine", "theirs")

    folder = LocalRoot(tmp_path).publish("mine", make)
    assert open_split(folder / "train.arrow").info.source == "theirs"
    assert visible(tmp_path) == ["mine"]


@pytest.mark.parametrize("locks", [True, False])
def test_many_at_once_give_one_dataset(locks, tmp_path, monkeypatch):
    """With locks the work is done once; on a filesystem without them everybody works, and one folder wins."""

    def no_locks(*arguments):
        raise OSError(errno.ENOTSUP, "no locks here")

    if not locks:
        monkeypatch.setattr("rayctsl.data.local_root.fcntl.flock", no_locks)
    made, together = [], threading.Barrier(6)

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder, folder.name)
        if not locks:
            together.wait(60)  # nobody is done before all have begun

    def work() -> str:
        together.wait(60)
        folder = LocalRoot(tmp_path).publish("mine", make)
        return open_split(folder / "train.arrow").info.source

    with ThreadPoolExecutor(6) as pool:
        seen = {future.result() for future in [pool.submit(work) for _ in range(6)]}
    assert len(seen) == 1
    assert len(made) == (1 if locks else 6)
    assert visible(tmp_path) == ["mine"]


def test_strangers_folders_are_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds no dataset; move it away"):
        LocalRoot(tmp_path).publish("mine", fill)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"
    assert LocalRoot(tmp_path).names() == []


def test_half_a_dataset_is_none(tmp_path):
    fill(tmp_path / "mine")
    assert LocalRoot(tmp_path).names() == ["mine"]
    (tmp_path / "mine" / "test.arrow").unlink()
    assert LocalRoot(tmp_path).names() == []
    assert LocalRoot(tmp_path).fetch("mine") is None


def test_leftovers_of_other_hosts_go_when_they_are_old(tmp_path):
    here = socket.gethostname()
    fresh, old = [".mine~elsewhere-1-aa", f".mine~{here}2-1-aa"], [".mine~elsewhere-2-bb", f".mine~{here}-1-bb"]
    for name in fresh + old:
        (tmp_path / name).mkdir()
    os.utime(tmp_path / old[0], (1, 1))  # what this host left is old at once
    LocalRoot(tmp_path).publish("mine", fill)
    assert sorted(path.name for path in tmp_path.glob(".mine~*")) == sorted(fresh)


def children_of(pid: int) -> list[int]:
    return [int(text) for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_killed_import_leaves_nothing_half_made(kill, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    for name in ("ant", "bee"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(noise).save(tmp_path / "images" / name / "0.png", compress_level=0)
        for number in range(1, 40):
            os.link(tmp_path / "images" / name / "0.png", tmp_path / "images" / name / f"{number}.png")
    root = tmp_path / "root"
    command = [sys.executable, "-m", "rayctsl.data", "import", "mine", "--from", str(tmp_path / "images")]
    command += ["--data-root", str(root), "--workers", "2", "--size", "16"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(root.glob(".mine~*/train.pixels")) and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = []
    while len(workers) < 2 and time.monotonic() < deadline:
        workers = [pid for pid in children_of(process.pid) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        time.sleep(0.01)
    assert all(never_sees_ctrl_c(pid) for pid in workers)
    if kill == signal.SIGINT:
        os.killpg(process.pid, kill)  # Ctrl-C on a terminal reaches every process
    else:
        process.send_signal(kill)
    error = process.communicate(timeout=60)[1]
    if kill == signal.SIGINT:
        assert process.returncode == 130
        assert error == "stopped; the data root is as it was\n"
        assert visible(root) == []
    else:
        assert not (root / "mine").exists()
    assert len(workers) == 2
    deadline = time.monotonic() + 60
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, "a worker outlived the import"
        time.sleep(0.05)
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert visible(root) == ["mine"]
    assert len(open_dataset("mine", str(root)).train) == 64


def never_sees_ctrl_c(pid: int) -> bool:
    blocked = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk"))
    return bool(int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1)
