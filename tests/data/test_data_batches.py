"""Batches: a pure function of (seed, name, step); crops and flips are those of the padded image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayctsl.data.batches import Batches, Normalizer, batches_in_order, split_indices
from rayctsl.data.store import SplitInfo, open_split, write_split


@pytest.fixture
def split(tmp_path):
    images = np.random.default_rng(0).integers(1, 256, (40, 16, 16, 3), dtype=np.uint8)
    write_split(
        tmp_path / "train.arrow", images, np.arange(40) % 4, SplitInfo("s", "train", (16, 16, 3), tuple("abcd"))
    )
    return open_split(tmp_path / "train.arrow")


def make(split, **options):
    return Batches(split, **{"seed": 1, "name": "s", "batch_size": 12, **options})


def test_pure_function_of_seed_name_and_step(split):
    forwards, backwards = make(split), make(split)
    expected = {step: forwards(step) for step in range(8)}
    for step in (7, 2, 5, 0):
        images, labels = backwards(step)
        assert torch.equal(images, expected[step][0])
        assert torch.equal(labels, expected[step][1])
    for other in (make(split, seed=2), make(split, name="other")):
        assert not torch.equal(other(0)[0], expected[0][0])


def test_an_epoch_sees_every_image_once_and_batches_span_epochs(split):
    batches = make(split)
    seen = np.concatenate([batches.choose(step) for step in range(10)])  # 120 images: three epochs of 40
    for epoch in range(3):
        assert sorted(seen[40 * epoch : 40 * epoch + 40]) == list(range(40))
    assert not np.array_equal(seen[:40], seen[40:80])


def test_crops_and_flips_are_windows_of_the_padded_image(split):
    batches = make(split, crop_padding=3)
    chosen = batches.choose(4)
    original = split.images(chosen)
    augmented = batches.augment(original.copy(), 4)
    padded = np.pad(original, ((0, 0), (3, 3), (3, 3), (0, 0)))
    offsets, flips = set(), 0
    for image, canvas in zip(augmented, padded, strict=True):
        windows = {(y, x): canvas[y : y + 16, x : x + 16] for y in range(7) for x in range(7)}
        plain = [at for at, window in windows.items() if np.array_equal(window, image)]
        mirrored = [at for at, window in windows.items() if np.array_equal(window[:, ::-1], image)]
        assert len(plain) + len(mirrored) == 1
        offsets.update(plain + mirrored)
        flips += bool(mirrored)
    assert len(offsets) > 6
    assert 0 < flips < len(chosen)


def test_crops_reach_every_offset(split):
    batches = make(split, crop_padding=2, flip=False, batch_size=40)
    marked = np.zeros((40, 16, 16, 3), np.uint8)
    marked[:, 5, 5] = 255
    found = np.argwhere(np.concatenate([batches.augment(marked.copy(), step) for step in range(8)])[..., 0])
    assert {(7 - int(y), 7 - int(x)) for _, y, x in found} == {(y, x) for y in range(5) for x in range(5)}


def test_no_augmentation_is_the_image_itself(split):
    batches = make(split, crop_padding=0, flip=False)
    images, labels = batches(3)
    chosen = batches.choose(3)
    mean, std = np.array(split.info.mean), np.array(split.info.std)
    expected = ((split.images(chosen) - mean) / std).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(images.numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(labels.numpy(), split.labels[chosen])
    assert images.is_contiguous()


def test_channels_last_holds_the_same_numbers(split):
    plain, last = make(split)(0)[0], make(split, channels_last=True)(0)[0]
    assert torch.equal(plain, last)
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_small_sets_and_subsets(split):
    batches = make(split, indices=np.array([3, 5, 7]), batch_size=128)
    assert batches.batch_size == 3
    for step in range(5):
        assert sorted(batches.choose(step)) == [3, 5, 7]


def test_evaluation_order(split):
    normalize = Normalizer(split.info)
    parts = list(batches_in_order(split, normalize, 16))
    assert [len(labels) for _, labels in parts] == [16, 16, 8]
    np.testing.assert_array_equal(torch.cat([labels for _, labels in parts]).numpy(), split.labels)


def test_held_out_split_is_seeded_disjoint_and_never_empty():
    train, held_out = split_indices(100, 0.1, seed=0, name="a")
    assert len(held_out) == 10
    assert sorted(np.concatenate([train, held_out])) == list(range(100))
    assert not np.array_equal(held_out, split_indices(100, 0.1, seed=1, name="a")[1])
    assert [len(part) for part in split_indices(2, 0.01, 0, "a")] == [1, 1]
    with pytest.raises(ValueError, match="too few"):
        split_indices(1, 0.5, 0, "a")
