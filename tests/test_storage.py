"""Storage: the same files by path and by URI, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from pyarrow import NativeFile
from pyarrow.fs import FileSystem

from rayctsl.storage import Storage, open_regular


@pytest.mark.parametrize("as_uri", [False, True])
def test_files_by_path_and_by_uri(tmp_path, as_uri):
    base = f"file://{tmp_path}/base" if as_uri else str(tmp_path / "base")
    storage = Storage(base)
    assert storage.names() == []
    assert not storage.exists("a/b.bin")
    storage.write("a/b.bin", b"1")
    storage.write("a/b.bin", b"22")
    assert storage.read("a/b.bin") == b"22"
    assert storage.inside("a").read("b.bin") == b"22"
    assert storage.names() == ["a"]
    assert storage.names("a") == ["b.bin"]
    storage.delete_folder("a")
    assert not storage.exists("a/b.bin")
    with pytest.raises(FileNotFoundError):
        storage.read("a/b.bin")


def test_a_folder_of_a_store_keeps_the_stores_options():
    store = Storage("s3://bucket/runs/?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1")
    assert store.inside("a").base == "s3://bucket/runs/a?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    storage = Storage(tmp_path)
    storage.write("file", b"old")
    with pytest.raises(TypeError):
        storage.write("file", "not bytes")  # type: ignore[arg-type]
    assert storage.read("file") == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_address_that_cannot_be_used():
    with pytest.raises(ValueError, match="not a storage address"):
        Storage("nonsense://bucket/x")


def test_only_plain_files_below_a_folder_are_handed_out(tmp_path):
    shelf, secret = tmp_path / "shelf", tmp_path / "outside"
    for folder in (shelf / "a", secret):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"1")
    with open(open_regular(shelf, "a/file"), "rb") as file:
        assert file.read() == b"1"
    (shelf / "link").symlink_to(secret / "file")
    (shelf / "way").symlink_to(secret)
    os.mkfifo(shelf / "pipe")  # which nobody writes into
    for name in ("link", "way/file", "pipe", "a", "a/file/file", "a/none"):
        with pytest.raises(FileNotFoundError):
            open_regular(shelf, name)
    for name in ("../outside/file", "a/../a/file", "/etc/hostname", "a//file", ""):
        with pytest.raises(ValueError, match="not a path below a folder"):
            open_regular(shelf, name)


class Meanwhile:
    """A file system where something happens once between asking for a file's length and for its bytes."""

    def __init__(self, filesystem: FileSystem, happen: Callable[[], None]):
        self.filesystem, self.happenings = filesystem, [happen]

    def __getattr__(self, name: str) -> object:
        return getattr(self.filesystem, name)

    def open_input_stream(self, path: str) -> NativeFile:
        stream = self.filesystem.open_input_stream(path)
        if self.happenings:
            self.happenings.pop()()
        return stream


def test_an_object_that_goes_while_it_is_read_is_not_found(object_store):
    storage, other = Storage(object_store.format("gone")), Storage(object_store.format("gone"))
    storage.write("file", b"old")
    storage._filesystem = Meanwhile(storage._filesystem, lambda: other.delete("file"))
    with pytest.raises(FileNotFoundError):
        storage.read("file")


@pytest.mark.parametrize("new", [b"longer than before", b"s"])
def test_an_object_that_is_replaced_while_it_is_read_is_read_whole(object_store, new):
    storage, other = Storage(object_store.format("new")), Storage(object_store.format("new"))
    storage.write("file", b"before")
    storage._filesystem = Meanwhile(storage._filesystem, lambda: other.write("file", new))
    assert storage.read("file") == new
