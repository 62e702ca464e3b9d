"""The Arrow store: what is written comes back, memory-mapped, verified, and never half-made."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from rayctsl.data import store
from rayctsl.data.store import SplitInfo, open_split, verify_split, write_split


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), dtype=np.uint8)


INFO = SplitInfo("made", "train", (6, 5, 3), ("a", "b", "c"), source="here", licence="CC0")


@pytest.mark.parametrize("chunk_bytes", [2**29, 6 * 5 * 3 * 7])
def test_round_trip_in_one_chunk_and_in_many(tmp_path, images, monkeypatch, chunk_bytes):
    monkeypatch.setattr(store, "CHUNK_BYTES", chunk_bytes)
    labels = np.arange(50) % 3
    info = write_split(tmp_path / "train.arrow", images, labels, INFO)
    split = open_split(tmp_path / "train.arrow")
    verify_split(split)
    assert split.info == info
    assert (len(split), split.info.num_classes, split.info.source, split.info.licence) == (50, 3, "here", "CC0")
    np.testing.assert_array_equal(split.labels, labels)
    chosen = np.array([49, 0, 7, 7, 30, 6])
    np.testing.assert_array_equal(split.images(chosen), images[chosen])
    np.testing.assert_array_equal(np.concatenate(list(split.chunks())), images)
    np.testing.assert_allclose(split.info.mean, images.reshape(-1, 3).mean(0))
    np.testing.assert_allclose(split.info.std, images.reshape(-1, 3).std(0))
    assert len(list(split.chunks())) == (1 if chunk_bytes == 2**29 else 8)


def test_wrong_input_writes_nothing(tmp_path, images):
    path = tmp_path / "train.arrow"
    for wrong, labels in (
        (images.astype(float), np.zeros(50, int)),
        (images[:, :4], np.zeros(50, int)),
        (images, np.zeros(49, int)),
        (images, np.full(50, 3)),
        (images, np.full(50, -1)),
        (images[:0], np.zeros(0, int)),
    ):
        with pytest.raises(ValueError, match="made/train"):
            write_split(path, wrong, labels, INFO)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_found(tmp_path, images):
    path = tmp_path / "train.arrow"
    write_split(path, images, np.zeros(50, int), INFO)
    data = bytearray(path.read_bytes())
    place = bytes(data).index(images[10].tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        verify_split(open_split(path))
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="not a readable dataset file"):
        open_split(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a readable dataset file"):
        open_split(path)


def test_a_file_of_a_later_version_is_refused_and_not_misread(tmp_path, images):
    write_split(tmp_path / "train.arrow", images, np.zeros(50, int), replace(INFO, version=2))
    with pytest.raises(ValueError, match=r"train\.arrow has format version 2, this program reads 1$"):
        open_split(tmp_path / "train.arrow")


def test_a_channel_that_is_the_same_everywhere_is_not_blown_up(tmp_path, images):
    images[..., 1] = 200
    info = write_split(tmp_path / "train.arrow", images, np.zeros(50, int), INFO)
    assert (info.mean[1], info.std[1]) == (200, 1)
    assert min(info.std[0], info.std[2]) > 50


def test_reading_needs_no_pandas(tmp_path, images):
    """pyarrow's own ways to numpy load it, 45 MB and most of a second in every process that opens a dataset."""
    labels = np.arange(50) % 3
    write_split(tmp_path / "train.arrow", images, labels, INFO)
    program = """if True:
        import sys
        from pathlib import Path
        from rayctsl.data.store import open_split, verify_split
        split = open_split(Path(sys.argv[1]))
        verify_split(split)
        print(split.labels.tolist(), "pandas" in sys.modules)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "train.arrow")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{labels.tolist()} False\n"
