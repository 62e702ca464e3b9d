"""A data root on S3 (moto's server on loopback), with a verified copy per node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rayctsl.commands.data import main
from rayctsl.data.library import open_dataset
from rayctsl.data.local_root import never
from rayctsl.data.remote_root import RemoteRoot
from rayctsl.data.roots import open_root
from rayctsl.data.store import SplitInfo, write_split

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def uri(s3, tmp_path, monkeypatch):
    import boto3

    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "cache"))
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{s3}",
        region_name="us-east-1",
        aws_access_key_id="me",
        aws_secret_access_key="secret",
    )
    bucket = f"bucket-{abs(hash(str(tmp_path))):x}"[:40]
    client.create_bucket(Bucket=bucket)
    return f"s3://me:secret@{bucket}/some/prefix?endpoint_override={s3}&scheme=http&region=us-east-1"


def filler(source: str):
    def fill(folder):
        for split in ("train", "test"):
            info = SplitInfo("mine", split, (4, 4, 1), ("a", "b"), source=source)
            write_split(folder / f"{split}.arrow", PIXELS, np.arange(6) % 2, info)

    return fill


def test_publish_list_and_open(uri, tmp_path):
    place = open_root(uri)
    assert isinstance(place, RemoteRoot)
    assert place.names() == []
    place.publish("mine", filler("first"))
    place.publish(".set-aside", filler("old"))
    assert place.names() == ["mine"]
    description = place.describe("mine")
    assert (description.train.source, description.train.split, description.test.split) == ("first", "train", "test")
    dataset = open_dataset("mine", uri)
    assert tmp_path / "cache" in dataset.train.path.parents
    np.testing.assert_array_equal(dataset.train.images(np.arange(6)), PIXELS)


def test_a_node_copies_once(uri, monkeypatch):
    open_root(uri).publish("mine", filler("first"))
    inode = open_dataset("mine", uri).train.path.stat().st_ino
    monkeypatch.setattr(RemoteRoot, "_copy", lambda *arguments: pytest.fail("copied again"))
    assert open_dataset("mine", uri).train.path.stat().st_ino == inode


def test_many_on_a_node_copy_once(uri, tmp_path, monkeypatch):
    open_root(uri).publish("mine", filler("first"))
    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "another node"))
    copies, copy = [], RemoteRoot._copy
    monkeypatch.setattr(RemoteRoot, "_copy", lambda *arguments: (copies.append(1), copy(*arguments)))
    with ThreadPoolExecutor(6) as pool:
        paths = {dataset.train.path for dataset in pool.map(open_dataset, ["mine"] * 6, [uri] * 6)}
    assert len(paths) == len(copies) == 1


def test_replaced_data_is_copied_again(uri):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    old = open_dataset("mine", uri)
    place.publish("mine", filler("ignored"))
    assert open_dataset("mine", uri).train.info.source == "first"
    place.publish("mine", filler("second"), keep=never)
    new = open_dataset("mine", uri)
    assert new.train.info.source == "second"
    np.testing.assert_array_equal(old.train.images(np.arange(6)), PIXELS)
    assert not old.train.path.exists()


def test_a_copy_goes_when_its_own_data_are_replaced_and_not_with_anothers(uri):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    place.publish("mine-too", filler("first"))
    other = open_dataset("mine-too", uri).train.path
    place.publish("mine", filler("second"), keep=never)
    assert open_dataset("mine", uri).train.info.source == "second"
    assert other.exists()


def replaced_while_copied(monkeypatch, uri, sources):
    """Somebody puts the next of `sources` in the place of `mine` whenever a node begins to copy it."""
    copy, waiting = RemoteRoot._copy, iter(sources)

    def replace_and_copy(self, name, folder):
        if source := next(waiting, None):
            filler(source)(folder)
            for split in ("train.arrow", "test.arrow"):
                self._upload(folder / split, f"{self.prefix}/{name}/{split}")
        copy(self, name, folder)

    monkeypatch.setattr(RemoteRoot, "_copy", replace_and_copy)


def test_data_that_are_replaced_while_a_node_copies_them_are_copied_again(uri, tmp_path, monkeypatch):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "another node"))
    replaced_while_copied(monkeypatch, uri, ["second"])
    assert open_dataset("mine", uri).train.info.source == "second"
    place.publish("mine", filler("first"), keep=never)
    assert open_dataset("mine", uri).train.info.source == "first", "what was copied meanwhile is taken for the first"


def test_a_node_gives_up_on_data_that_never_rest(uri, tmp_path, monkeypatch):
    open_root(uri).publish("mine", filler("first"))
    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "another node"))
    replaced_while_copied(monkeypatch, uri, map(str, range(50)))
    with pytest.raises(ValueError, match=r"mine keeps changing while it is copied; try again later$"):
        open_dataset("mine", uri)


def test_nobody_sees_new_images_beside_old_ones(uri, monkeypatch):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    upload, seen = RemoteRoot._upload, []

    def look_and_upload(self, source, target):
        seen.append(self.names())
        upload(self, source, target)

    monkeypatch.setattr(RemoteRoot, "_upload", look_and_upload)
    place.publish("mine", filler("second"), keep=never)
    assert seen == [[], []]
    assert place.names() == ["mine"]


def test_half_an_upload_is_no_dataset(uri, tmp_path):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    place.filesystem.delete_file(f"{place.prefix}/mine/test.arrow")
    assert place.names() == []
    assert place.fetch("mine") is None
    with pytest.raises(ValueError, match="unknown"):
        open_dataset("mine", uri)


def test_damaged_remote_file_is_refused(uri, tmp_path, monkeypatch):
    place = open_root(uri)
    place.publish("mine", filler("first"))
    path = f"{place.prefix}/mine/train.arrow"
    with place.filesystem.open_input_file(path) as file:
        content = bytearray(file.read())
    content[content.index(PIXELS[2].tobytes())] ^= 1
    with place.filesystem.open_output_stream(path) as file:
        file.write(bytes(content))
    monkeypatch.setenv("RAYCTSL_CACHE", str(tmp_path / "another node"))
    with pytest.raises(ValueError, match=r"mine cannot be copied: .*damaged"):
        open_dataset("mine", uri)
    assert not list((tmp_path / "another node").rglob("*mine~*/*")), "a bad copy is left"


def test_command(uri, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x_train=PIXELS, y_train=np.arange(6) % 2, x_test=PIXELS, y_test=np.arange(6) % 2)
    assert main(["import", "mine", "--from", str(tmp_path / "a.npz"), "--data-root", uri]) == 0
    assert main(["check", "--data-root", uri]) == 0
    assert main(["list", "--data-root", uri]) == 0
    shown = capsys.readouterr().out
    assert "imported from a.npz" in shown
    assert "secret" not in shown
    assert shown.splitlines()[-1].startswith("data root: s3://bucket-")


def test_embedded_data_is_made_in_the_cache(uri, tmp_path):
    dataset = open_dataset("georgian", uri)
    assert dataset.train.path == tmp_path / "cache" / "embedded" / "georgian" / "train.arrow"
    assert open_root(uri).names() == []


def test_unusable_roots_are_refused_without_secrets(s3, tmp_path, capsys):
    missing = f"s3://me:secret@no-such-bucket/data?endpoint_override={s3}&scheme=http&region=us-east-1"
    for root in (missing, "gopher://me:secret@hole/data", "s3://me:secret@b/c?nonsense=1"):
        assert main(["check", "cub", "--data-root", root]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("rayctsl.data")
        assert captured.err.count("\n") == 1
        assert "secret" not in captured.err
