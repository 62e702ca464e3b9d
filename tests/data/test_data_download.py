"""Downloads from a real server on loopback: cut and resumed, checked, and asked for in one clear line."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from urllib.parse import quote

import numpy as np
import pytest

from rayctsl.data.catalog import CATALOG
from rayctsl.data.entries import RemoteFile
from rayctsl.data.prepare import prepare_entry
from rayctsl.data.sources import download
from rayctsl.data.sources.download import DownloadError, fetch_file, fetch_files
from rayctsl.data.sources.quickdraw import first_drawings
from rayctsl.data.store import open_split

CONTENT = np.random.default_rng(0).bytes(3_000_000)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(download, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def remote(server):
    server.files["/a.bin"] = CONTENT
    return RemoteFile("a.bin", f"{server.url}/a.bin", hashlib.md5(CONTENT).hexdigest())


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_plain(remote, tmp_path, server):
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT
    fetch_file(remote, tmp_path, "demo")
    assert len(server.requests) == 1
    assert names(tmp_path) == ["a.bin"]


def test_cut_connection_is_resumed_where_it_ended(remote, tmp_path, server):
    server.cuts = [1_000_000, 500_000]
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=1000000-", "bytes=1500000-"]
    assert server.sent == len(CONTENT)


def test_next_run_goes_on_with_the_part(remote, tmp_path, server):
    server.cuts = [1_000_000] + [0] * 10
    with pytest.raises(DownloadError):
        fetch_file(remote, tmp_path, "demo")
    assert names(tmp_path) == ["a.bin.part"]
    server.cuts, server.sent = [], 0
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT
    assert server.sent == len(CONTENT) - 1_000_000


def test_server_without_ranges_starts_again(remote, tmp_path, server):
    server.ranges, server.cuts = False, [1_000_000]
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT


def test_the_beginning_of_a_file_is_whole_from_a_server_without_ranges(remote, tmp_path, server):
    server.ranges = False
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    beginning = dataclasses.replace(remote, md5="", first_bytes=5000)
    assert fetch_file(beginning, tmp_path, "demo").read_bytes() == CONTENT[:5000]


def test_another_range_than_asked_for_is_not_put_behind_what_is_there(remote, tmp_path, server):
    server.always_from_the_start = True
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    beginning = dataclasses.replace(remote, md5="", first_bytes=5000)
    with pytest.raises(DownloadError, match="another range than asked for"):
        fetch_file(beginning, tmp_path, "demo")
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1000]


def test_part_of_another_version_is_thrown_away(remote, tmp_path, server):
    (tmp_path / "a.bin.part").write_bytes(b"old" * 1000)
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT


def test_whole_part_is_not_downloaded_again(remote, tmp_path, server):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT
    assert server.sent == 0


def test_a_connection_may_be_cut_any_number_of_times_as_long_as_bytes_come(remote, tmp_path, server):
    server.cuts = [1000] * (2 * download.ATTEMPTS)
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT
    assert len(server.requests) == 2 * download.ATTEMPTS + 1


@pytest.mark.parametrize("errors", [[503, 500], [429], [408]])
def test_failing_server_is_tried_again(remote, tmp_path, server, errors):
    server.errors = errors
    assert fetch_file(remote, tmp_path, "demo").read_bytes() == CONTENT


def test_wrong_sum_leaves_nothing(remote, tmp_path, server):
    server.files["/a.bin"] = b"a login page"
    with pytest.raises(DownloadError, match="md5") as caught:
        fetch_file(remote, tmp_path, "demo")
    assert names(tmp_path) == []
    assert remote.url in str(caught.value)


def test_damaged_file_on_disk_is_named_and_kept(remote, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"a\.bin is damaged or another file"):
        fetch_file(remote, tmp_path, "demo")
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("case", ["dead mirror", "missing file"])
def test_one_line_says_what_from_where_and_where_to(case, remote, tmp_path, server):
    file = dataclasses.replace(remote, url="http://127.0.0.1:9/a.bin" if case == "dead mirror" else f"{server.url}/b")
    with pytest.raises(DownloadError) as caught:
        fetch_file(file, tmp_path / "demo", "demo")
    line = str(caught.value)
    assert "\n" not in line
    assert file.url in line
    assert str(tmp_path / "demo" / "a.bin") in line
    assert ("404" in line) == (case == "missing file")
    assert names(tmp_path / "demo") == []


def test_files_without_an_address_are_asked_for(tmp_path):
    with pytest.raises(DownloadError) as caught:
        fetch_files(CATALOG["imagenet_3"], tmp_path / "imagenet")
    line = str(caught.value)
    assert "\n" not in line
    assert "ILSVRC2012_img_val.tar" in line
    assert "image-net.org" in line
    assert str(tmp_path / "imagenet") in line


def test_two_at_once_download_once(remote, tmp_path, server):
    threads = [threading.Thread(target=fetch_file, args=(remote, tmp_path, "demo")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1


def drawings(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((count, 784)) < 0.2, 255, 0).astype(np.uint8)


def test_quickdraw_downloads_only_the_beginning(tmp_path, server):
    bitmaps = {"The Eiffel Tower": drawings(400, 1), "t-shirt": drawings(200, 2)}
    files = []
    for name, bitmap in bitmaps.items():
        np.save(tmp_path / "whole.npy", bitmap)
        server.files[f"/{quote(name)}.npy"] = (tmp_path / "whole.npy").read_bytes()
        files.append(RemoteFile(f"{name}.npy", f"{server.url}/{quote(name)}.npy", first_bytes=160_000))
    entry = dataclasses.replace(CATALOG["quickdraw"], files=tuple(files), num_classes=2, num_train=200, num_test=200)
    out = tmp_path / "out"
    out.mkdir()
    prepare_entry(entry, 28, out, tmp_path / "downloads", workers=1)
    assert server.sent <= 320_000
    train, test = open_split(out / "train.arrow"), open_split(out / "test.arrow")
    assert train.info.class_names == ("The Eiffel Tower", "t-shirt")
    for label, bitmap in enumerate(bitmaps.values()):
        both = [split.images(np.flatnonzero(split.labels == label)).reshape(-1, 784) for split in (train, test)]
        assert [len(part) for part in both] == [100, 100]
        # Together the first 200 drawings, each once; not simply the first hundred for training.
        assert {row.tobytes() for part in both for row in part} == {row.tobytes() for row in bitmap[:200]}
        assert {row.tobytes() for row in both[0]} != {row.tobytes() for row in bitmap[:100]}


def test_quickdraw_refuses_by_name(tmp_path):
    for content, reason in ((b"no array", "not a .npy"), (None, "cut off"), (np.zeros((300, 3)), "bitmaps")):
        path = tmp_path / "bee.npy"
        np.save(path, drawings(300, 0) if content is None or isinstance(content, bytes) else content)
        if content is None:
            path.write_bytes(path.read_bytes()[:50_000])
        elif isinstance(content, bytes):
            path.write_bytes(content)
        with pytest.raises(ValueError, match=reason) as caught:
            first_drawings(path, 200)
        assert "bee.npy" in str(caught.value)
