"""Damage in a stored dataset is found, and damaged images are named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rayctsl.data.catalog import CATALOG
from rayctsl.data.check import problems
from rayctsl.data.library import Dataset
from rayctsl.data.store import SplitInfo, damaged_images, open_split, verify_split, write_split

# 75 bytes an image: no power of two anywhere.
SHAPE = (5, 5, 3)
PIXELS = np.random.default_rng(0).integers(0, 256, (10, *SHAPE), dtype=np.uint8)


def write(folder, name="mine", source="", labels=None, class_names=("a", "b"), splits=("train", "test"), names=None):
    labels = np.arange(10) % 2 if labels is None else labels
    for split in splits:
        info = SplitInfo(name, split, SHAPE, class_names, source=source)
        write_split(folder / f"{split}.arrow", PIXELS, labels, info, names)
    return opened(folder, name)


def opened(folder, name="mine"):
    return Dataset(name, open_split(folder / "train.arrow"), open_split(folder / "test.arrow"))


def spoil(path, row, value=255):
    """Change one pixel of a stored image."""
    content = bytearray(path.read_bytes())
    start = content.index(PIXELS[row].tobytes())
    content[start + 7] = (content[start + 7] + 1) % 256
    path.write_bytes(content)


def test_sound(tmp_path):
    dataset = write(tmp_path)
    assert problems(dataset) == []
    np.testing.assert_array_equal(dataset.train.images(np.arange(10)), PIXELS)


@pytest.mark.parametrize("chunk_bytes", [2**29, 200])  # one record batch, and five
def test_damaged_images_are_named(chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("rayctsl.data.store.CHUNK_BYTES", chunk_bytes)
    write(tmp_path, names=[f"birds/{row}.jpg" for row in range(10)])
    for row in (3, 8):
        spoil(tmp_path / "train.arrow", row)
    dataset = opened(tmp_path)
    assert damaged_images(dataset.train) == ["birds/3.jpg", "birds/8.jpg"]
    assert damaged_images(dataset.test) == []
    with pytest.raises(ValueError, match="damaged"):
        verify_split(dataset.train)
    found = problems(dataset)
    assert any("2 damaged images: birds/3.jpg, birds/8.jpg" in line for line in found)


@pytest.mark.parametrize("chunk_bytes", [2**29, 200])
def test_images_without_names_are_numbered(chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("rayctsl.data.store.CHUNK_BYTES", chunk_bytes)
    write(tmp_path)
    spoil(tmp_path / "test.arrow", 6)
    assert damaged_images(opened(tmp_path).test) == ["6"]


def test_number_of_names_must_fit(tmp_path):
    with pytest.raises(ValueError, match="10 images but 2 names"):
        write(tmp_path, names=["a", "b"])


def test_classes_without_images_and_strange_splits(tmp_path):
    dataset = write(tmp_path, labels=np.zeros(10, int), class_names=("a", "b", "c"))
    assert problems(dataset) == ["2 classes have no training image: b, c"]
    write(tmp_path, class_names=("a", "x"), splits=("test",))
    assert "the training and the test split have different classes" in problems(opened(tmp_path))


def test_splits_of_different_shapes_are_told(tmp_path):
    write(tmp_path)
    info = SplitInfo("mine", "test", (3, 5, 5), ("a", "b"))
    write_split(tmp_path / "test.arrow", PIXELS.reshape(10, 3, 5, 5), np.arange(10) % 2, info)
    assert problems(opened(tmp_path)) == ["the training and the test split have images of different shapes"]


def test_a_class_may_lack_test_images_but_no_training_images(tmp_path):
    write(tmp_path)
    assert problems(write(tmp_path, labels=np.zeros(10, int), splits=("test",))) == []
    write(tmp_path, splits=("test",))
    only_a = write(tmp_path, labels=np.zeros(10, int), splits=("train",))
    assert problems(only_a) == ["1 classes have no training image: b"]


def test_prepared_data_must_have_the_publishers_counts(tmp_path, monkeypatch):
    entry = CATALOG["cub"]
    dataset = write(tmp_path, "cub", source=entry.home)
    assert problems(dataset) == [
        "train: 10 images, the publisher has 5,994",
        "test: 10 images, the publisher has 5,794",
        "2 classes, the publisher has 200",
    ]
    assert problems(write(tmp_path / "own", "cub", source="imported from cub.npz")) == []
    monkeypatch.setitem(CATALOG, "cub", dataclasses.replace(entry, num_train=10, num_test=10, num_classes=2))
    assert problems(dataset) == []


def test_datasets_whose_classes_are_called_otherwise_have_other_checksums(tmp_path):
    first, again = write(tmp_path / "first"), write(tmp_path / "again")
    other = write(tmp_path / "other", class_names=("b", "a"))
    assert first.checksum == again.checksum != other.checksum


def test_every_cut_file_is_refused_by_name(tmp_path):
    write(tmp_path)
    path = tmp_path / "train.arrow"
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"train\.arrow is not a readable dataset file") as caught:
            open_split(path)
        assert "\n" not in str(caught.value)
