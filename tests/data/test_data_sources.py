"""Every source reads its publisher's true layout: counts, labels and split are right, damage is refused by name."""

from __future__ import annotations

import dataclasses
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayctsl.data.catalog import CATALOG
from rayctsl.data.prepare import prepare_entry, write_dataset
from rayctsl.data.raw import Listing
from rayctsl.data.store import open_split, verify_split
from tests.data.layouts import colour_of

OWN = ["tiny_imagenet_1", "tiny_imagenet_2", "cub", "stanford_dogs", "imagenet_6"]
OF_FILES = ["stanford_cars", "aircraft", "vgg_flowers", "vgg_pets", "food101", "dtd"]
OF_ARRAYS = ["cifar10", "cifar100", "fashion_mnist", "svhn", "stl10"]


def prepare(made, tmp_path, entry=None, size=16):
    out = tmp_path / "out"
    out.mkdir()
    prepare_entry(entry or made.write(), size, out, made.downloads, workers=1)
    return {split: open_split(out / f"{split}.arrow") for split in ("train", "test")}


@pytest.mark.parametrize("name", OWN + OF_FILES + OF_ARRAYS)
def test_layout_counts_labels_and_split(name, publisher, tmp_path):
    made = publisher(name)
    entry = made.write()
    splits = prepare(made, tmp_path, entry)
    for split, expected in (("train", entry.num_train), ("test", entry.num_test)):
        opened = splits[split]
        verify_split(opened)
        assert len(opened) == expected
        assert opened.info.shape == (16, 16, entry.channels)
        assert opened.info.num_classes == entry.num_classes
        assert opened.info.licence == entry.licence
        images = opened.images(np.arange(len(opened))).astype(int)
        for label, image in zip(opened.labels, images, strict=True):
            wanted = colour_of(int(label), split)[: entry.channels]
            np.testing.assert_allclose(image[6:], np.broadcast_to(wanted, image[6:].shape), atol=6)
            assert (image[:2] < 6).all() == (name in OF_ARRAYS), "the black bar of the arrays is not at the top"
    present = set(splits["train"].labels.tolist())
    assert present == set(splits["test"].labels.tolist())
    assert len(present) >= 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["test.arrow", "train.arrow"]


def test_class_names(publisher, tmp_path):
    assert prepare(publisher("stanford_dogs"), tmp_path)["train"].info.class_names == ("Chihuahua", "Japanese spaniel")


@pytest.mark.parametrize(("name", "wnids"), [("tiny_imagenet_1", (1, 3)), ("tiny_imagenet_2", (5, 7))])
def test_tiny_imagenet_splits_follow_the_sorted_ids(name, wnids, publisher, tmp_path):
    names = prepare(publisher(name), tmp_path)["train"].info.class_names
    assert names == tuple(f"name of n{number:08d}" for number in wnids)


def test_imagenet_class_names_are_those_of_the_split(publisher, tmp_path):
    names = prepare(publisher("imagenet_6"), tmp_path)["train"].info.class_names
    assert len(names) == len(set(names)) == 98
    assert "hammer" in names


@pytest.mark.parametrize("flat", [False, True])
def test_imagenet_folders_give_the_same_as_archives(flat, publisher, tmp_path):
    made = publisher("imagenet_6")
    from_archives = prepare(made, tmp_path)
    folder = made.folder
    archives = made.files
    for name, inner in archives["ILSVRC2012_img_train.tar"].items():
        with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
            archive.extractall(folder / "train" / name.removesuffix(".tar"), filter="data")
    order = [line.split("/")[-1] for line in archives["ILSVRC2012_img_val.tar"]]
    wnids = sorted(name.removesuffix(".tar") for name in archives["ILSVRC2012_img_train.tar"])[::-1]
    for name, wnid in zip(order, wnids, strict=True):
        target = folder / "val" / ("" if flat else wnid) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archives["ILSVRC2012_img_val.tar"][name])
    for name in ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"):
        (folder / name).unlink()
    entry = made.entry(CATALOG["imagenet_6"].files)
    if not flat:
        (folder / "ILSVRC2012_devkit_t12.tar.gz").unlink()
    out = tmp_path / "second"
    out.mkdir()
    prepare_entry(entry, 16, out, made.downloads, workers=1)
    second = open_split(out / "train.arrow")
    assert second.info.class_names == from_archives["train"].info.class_names
    assert second.info.checksum == from_archives["train"].info.checksum
    np.testing.assert_array_equal(np.sort(open_split(out / "test.arrow").labels), np.sort(from_archives["test"].labels))


def refused(made, tmp_path, entry) -> str:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ValueError, match=r".") as caught:
        prepare_entry(entry, 16, out, made.downloads, workers=1)
    assert not list(out.glob("*.arrow"))
    assert "\n" not in str(caught.value)
    assert open_files(made.downloads) == [], "closed at once, and not when whoever was told forgets the error"
    return str(caught.value)


def open_files(folder) -> list[str]:
    found = map(os.path.realpath, Path("/proc/self/fd").iterdir())
    return [path for path in found if path.startswith(f"{folder}/")]


def archive_of_images(made) -> str:
    """The archive with most files in it: that of the images."""
    packed = {name: files for name, files in made.files.items() if isinstance(files, dict)}
    return max(packed, key=lambda name: len(packed[name]))


@pytest.mark.parametrize("name", OWN + OF_FILES + OF_ARRAYS)
def test_wrong_checksum(name, publisher, tmp_path):
    made = publisher(name)
    victim = next(iter(made.files))
    entry = made.write(lambda file, content: content + b"x" if file == victim else content)
    message = refused(made, tmp_path, entry)
    assert victim in message
    assert "md5" in message


@pytest.mark.parametrize("name", OWN + OF_FILES + OF_ARRAYS)
def test_truncated(name, publisher, tmp_path):
    made = publisher(name)
    victim = max(made.encoded(), key=lambda file: len(made.encoded()[file]))
    whole = made.encoded()[victim]
    made.encoded = lambda encoded=made.encoded: {**encoded(), victim: whole[: len(whole) * 2 // 3]}
    assert victim in refused(made, tmp_path, made.write())


@pytest.mark.parametrize("name", OWN + OF_FILES)
def test_corrupt_image_is_named(name, publisher, tmp_path):
    made = publisher(name)
    files = made.files[archive_of_images(made)]
    if name == "imagenet_6":
        files = made.files["ILSVRC2012_img_val.tar"]
    wanted = {"tiny_imagenet_1": "n00000003_1.JPEG", "tiny_imagenet_2": "val_0.JPEG"}.get(name, ".jpg")
    victim = [n for n in files if n.lower().endswith(wanted.lower())][-1] if name != "imagenet_6" else sorted(files)[5]
    files[victim] = files[victim][:60]
    message = refused(made, tmp_path, made.write())
    assert victim.split("/")[-1] in message
    assert "cannot be read" in message


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("tiny_imagenet_1", "val/val_annotations.txt"),
        ("tiny_imagenet_1", "wnids.txt"),
        ("cub", "train_test_split.txt"),
        ("cub", "classes.txt"),
        ("stanford_dogs", "test_list.mat"),
        ("imagenet_6", "ILSVRC2012_validation_ground_truth.txt"),
        ("imagenet_6", "meta.mat"),
        ("aircraft", "images_variant_test.txt"),
        ("vgg_pets", "trainval.txt"),
        ("food101", "meta/test.json"),
        ("dtd", "labels/val1.txt"),
        ("stanford_cars", "devkit/cars_train_annos.mat"),
    ],
)
def test_missing_list_is_named(name, missing, publisher, tmp_path):
    made = publisher(name)
    for files in made.files.values():
        for inner in [n for n in files if isinstance(files, dict) and n.endswith(missing)]:
            del files[inner]
    message = refused(made, tmp_path, made.write())
    assert missing in message or "stanford_cars" in message


@pytest.mark.parametrize("name", [*OWN, "aircraft"])
def test_missing_image_is_named(name, publisher, tmp_path):
    made = publisher(name)
    files = made.files["ILSVRC2012_img_val.tar" if name == "imagenet_6" else archive_of_images(made)]
    wanted = {"tiny_imagenet_1": "val_1.JPEG", "tiny_imagenet_2": "val_0.JPEG", "imagenet_6": ".JPEG"}.get(name, ".jpg")
    victim = next(n for n in sorted(files) if n.endswith(wanted))
    del files[victim]
    assert victim.split("/")[-1] in refused(made, tmp_path, made.write())


@pytest.mark.parametrize("name", [*OWN, "aircraft", "vgg_pets", "dtd", "cifar10"])
@pytest.mark.parametrize("evil", ["../../escaped.txt", "/tmp/rayctsl_escaped.txt", "a/../../../escaped.txt"])
def test_escaping_path(name, evil, publisher, tmp_path):
    made = publisher(name)
    archive = archive_of_images(made)
    made.files[archive] = {evil: b"gotcha", **made.files[archive]}
    message = refused(made, tmp_path, made.write())
    assert archive in message
    assert evil in message
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize("name", ["tiny_imagenet_1", "cub", "aircraft"])
def test_bomb(name, publisher, tmp_path):
    made = publisher(name)
    archive = archive_of_images(made)
    made.files[archive] = {"bomb": bytes(80 * 2**20), **made.files[archive]}
    message = refused(made, tmp_path, made.write())
    assert archive in message
    assert "unpack" in message
    assert not list(tmp_path.rglob("bomb"))


@pytest.mark.parametrize("announced", [8, 10])
def test_wrong_number_of_images_is_refused(publisher, tmp_path, announced):
    made = publisher("cub")
    entry = dataclasses.replace(made.write(), num_train=announced)
    assert refused(made, tmp_path, entry) == f"cub: the files list 9 train images, not {announced}"


@pytest.mark.parametrize(("given", "said"), [(1, "c.jpg"), (0, "a.jpg, c.jpg")])
def test_a_listed_image_that_never_comes_is_named(tmp_path, given, said):
    listing = Listing()
    for split, name in (("train", "a.jpg"), ("test", "c.jpg")):
        listing.add(split, name, 0)
    pixels = np.zeros((4, 4, 3), np.uint8)
    raw = listing.dataset(["only"], iter([listing.pick("a.jpg", pixels)][:given]))
    with pytest.raises(ValueError, match=f"birds: listed but not there: {said}$"):
        write_dataset(tmp_path, raw, "birds", (4, 4, 3), source="", licence="", workers=1)


def test_no_image_is_both_for_training_and_for_test():
    listing = Listing()
    listing.add("train", "a.jpg", 0)
    with pytest.raises(ValueError, match=r"'a\.jpg' is listed twice"):
        listing.add("test", "a.jpg", 0)


def test_image_with_too_many_pixels_is_named(publisher, tmp_path):
    made = publisher("cub")
    files = made.files["CUB_200_2011.tgz"]
    victim = next(name for name in files if name.endswith("bird_2.jpg"))
    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    files[victim] = out.getvalue()
    assert "bird_2.jpg" in refused(made, tmp_path, made.write())
