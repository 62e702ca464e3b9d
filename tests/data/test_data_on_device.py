"""Batches on an accelerator have the bits of the numpy path, whether their split fits there or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayctsl.data import on_device
from rayctsl.data.batches import Batches
from rayctsl.data.on_device import PrefetchedBatches, ResidentBatches, ResidentSplit, batches_on, fits
from rayctsl.data.store import SplitInfo, open_split, write_split
from tests.strict_device import Backend, counts

STEPS = 200


class InMemory:
    """As much of a split as batches need."""

    def __init__(self, images: np.ndarray):
        classes = tuple("abcd")
        self.info = SplitInfo("s", "train", images.shape[1:], classes, count=len(images), mean=(99.0,), std=(41.0,))
        self.labels, self._images = np.arange(len(images)) % 4, images

    def __len__(self):
        return len(self._images)

    def images(self, indices, out=None):
        return self._images[indices]


@st.composite
def batches(draw):
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    count = draw(st.integers(2, 30))
    images = np.random.default_rng(count).integers(0, 256, (count, height, width, draw(st.sampled_from([1, 3]))))
    indices = draw(st.none() | st.just(np.arange(0, count, 2)))
    return Batches(
        InMemory(images.astype(np.uint8)),
        seed=draw(st.integers(0, 99)),
        name="s",
        batch_size=draw(st.integers(1, 20)),
        crop_padding=draw(st.none() | st.integers(0, 6)),
        flip=draw(st.booleans()),
        indices=indices,
        channels_last=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=25)
@given(batches())
def test_gathered_pixels_are_those_of_the_numpy_path(plain):
    resident = ResidentBatches(plain, ResidentSplit(plain.split, "cpu"))
    for step in range(STEPS):
        pixels, labels = plain.pixels(step)
        plan = resident.plan(step)
        assert np.array_equal(resident.pixels(plan).numpy(), pixels)
        assert torch.equal(resident.resident.labels[plan[0]], labels)


@settings(deadline=None, max_examples=10)
@given(batches())
def test_whole_batches_have_the_same_bits_and_layout(plain):
    resident = ResidentBatches(plain, ResidentSplit(plain.split, "cpu"))
    for step in (3, 4, 5, 0, 130):
        images, labels = plain(step)
        there, their_labels = resident(step)
        assert torch.equal(there, images)
        assert there.stride() == images.stride()
        assert torch.equal(their_labels, labels)


@pytest.fixture
def plain(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    write_split(tmp_path / "s.arrow", images, np.arange(40) % 4, SplitInfo("s", "train", (8, 8, 3), tuple("abcd")))
    return Batches(open_split(tmp_path / "s.arrow"), seed=0, name="s", batch_size=6)


@pytest.mark.parametrize(("free", "kind"), [(2**20, ResidentBatches), (2**10, PrefetchedBatches)])
def test_on_an_accelerator_no_batch_is_waited_for(strict_device, plain, monkeypatch, free, kind):
    monkeypatch.setattr(Backend, "memory", (free, 2**30))
    expected = [plain(step) for step in range(5)]  # before: a thread makes them ahead, and they share their memory
    there = batches_on(plain, strict_device)
    assert isinstance(there, kind)
    counts.clear()
    for step in range(5):
        images, labels = there(step)
        assert torch.equal(images.inner, expected[step][0])
        assert torch.equal(labels.inner, expected[step][1])
    assert not {"read", "blocking copy", "synchronize"} & set(counts)
    assert counts["to device"] == (1 if kind is ResidentBatches else 10)


def test_training_and_held_out_batches_share_one_copy(strict_device, plain):
    other = Batches(plain.split, seed=0, name="held out", batch_size=6)
    first, second = (batches_on(each, strict_device) for each in (plain, other))
    assert first.resident is second.resident


def test_what_fits_is_decided_by_a_share_of_the_free_memory():
    half = on_device.SHARE
    assert fits(int(1000 * half), taken=0, free=1000)
    assert not fits(int(1000 * half) + 1, taken=0, free=1000)
    assert not fits(100, taken=450, free=550)  # what is there already counts against the same share
    assert fits(50, taken=450, free=550)
