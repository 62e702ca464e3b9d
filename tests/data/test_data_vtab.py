"""VTAB's sources read the true layouts: counts, labels and splits are right; damage is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from rayctsl.data.catalog import CATALOG
from rayctsl.data.prepare import prepare_entry
from rayctsl.data.raw import shuffled_rows
from rayctsl.data.sources.dmlab import examples
from rayctsl.data.store import open_split
from rayctsl.data.vtab import vtab_entries
from tests.data.layouts import colour_of
from tests.data.vtab_layouts import VTAB_MAKERS, record

WITHOUT_COLOUR = ("dsprites_location", "dsprites_orientation")


def prepare(made, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    prepare_entry(made.write(), 16, out, made.downloads, workers=1)
    return {split: open_split(out / f"{split}.arrow") for split in ("train", "test")}


def test_every_dataset_of_the_benchmark_has_a_source():
    assert {entry.name for entry in vtab_entries()} == set(VTAB_MAKERS)
    nineteen = {*VTAB_MAKERS, "cifar100", "dtd", "vgg_flowers", "vgg_pets", "svhn"}
    assert len(nineteen) == 19
    assert nineteen <= set(CATALOG)


@pytest.mark.parametrize("name", VTAB_MAKERS)
def test_layout_counts_and_labels(name, publisher, tmp_path):
    made = publisher(name)
    splits, entry = prepare(made, tmp_path), made.entry(())
    for split, expected in (("train", entry.num_train), ("test", entry.num_test)):
        opened = splits[split]
        assert len(opened) == expected
        assert opened.info.shape == (16, 16, entry.channels)
        assert opened.info.num_classes == entry.num_classes
        for label, image in zip(opened.labels, opened.images(np.arange(len(opened))).astype(int), strict=True):
            if name not in WITHOUT_COLOUR:
                wanted = colour_of(int(label), "train")[: min(entry.channels, 2)]
                np.testing.assert_allclose(
                    image[..., : len(wanted)], np.broadcast_to(wanted, (16, 16, len(wanted))), atol=6
                )
    assert len(set(splits["train"].labels.tolist())) >= 2


@pytest.mark.parametrize(("name", "values"), [("dsprites_location", 32), ("dsprites_orientation", 40)])
def test_sprites_are_white_and_neighbours_share_a_class(name, values, publisher, tmp_path):
    splits = prepare(publisher(name), tmp_path)
    labels = np.concatenate([splits["train"].labels, splits["test"].labels])
    expected = np.arange(values) * 16 // values
    np.testing.assert_array_equal(np.sort(labels), np.sort(expected))
    image = splits["train"].images(np.array([0]))[0]
    assert image[:6].min() == 255
    assert image[10:].max() == 0


def test_the_edges_of_the_ranges(publisher, tmp_path):
    assert prepare(publisher("clevr_distance"), tmp_path)["train"].labels.tolist() == [0, 1, 2, 3, 4, 5]


WITHOUT_SPLIT = ("sun397", "eurosat", "resisc45", "dsprites_location", "dsprites_orientation", "kitti_distance")


@pytest.mark.parametrize("name", WITHOUT_SPLIT)
def test_where_the_publisher_has_no_split_the_test_is_not_of_the_first_classes_alone(name, publisher, tmp_path):
    assert prepare(publisher(name), tmp_path)["test"].labels.max() > 1


def test_the_order_that_splits_are_made_by_is_the_same_everywhere():
    assert shuffled_rows(10) == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]  # NumPy's permutation of seed 0


def test_splits_do_not_change(publisher, tmp_path):
    first = prepare(publisher("sun397"), tmp_path)
    second = tmp_path / "second"
    second.mkdir()
    assert first["test"].labels.tolist() == prepare(publisher("sun397"), second)["test"].labels.tolist()


@pytest.mark.parametrize("name", VTAB_MAKERS)
def test_a_cut_file_is_refused_by_name(name, publisher, tmp_path):
    made = publisher(name)
    largest = max(made.encoded().items(), key=lambda item: len(item[1]))[0]
    entry = made.write()
    path = made.folder / largest
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    files = tuple(file if file.name != largest else type(file)(largest) for file in entry.files)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ValueError, match=r"."):
        prepare_entry(made.entry(files), 16, out, made.downloads, workers=1)
    assert not list(out.glob("*.arrow"))


def test_every_cut_of_a_file_of_records_is_noticed(tmp_path):
    path, one = tmp_path / "dmlab-test.tfrecord", record({"image": b"pixels", "label": 3})
    path.write_bytes(one * 2)
    assert list(examples(path)) == [{"image": b"pixels", "label": 3}] * 2
    for length in {*range(1, 2 * len(one))} - {len(one)}:
        path.write_bytes((one * 2)[:length])
        with pytest.raises(ValueError, match=r"dmlab-test\.tfrecord is damaged or cut off"):
            list(examples(path))
