"""The catalog agrees with the paper's tables, with torchvision, and with itself."""

from __future__ import annotations

import json

import pytest

from rayctsl.data.catalog import (
    ALIASES,
    CATALOG,
    NAME_PATTERN,
    NOT_MIRRORED,
    Reference,
    closest_name,
    find_entry,
    keeps_class_mirrored,
    parse_reference,
)
from rayctsl.data.entries import SOURCES_FOLDER
from rayctsl.data.sources import READERS

# Training images, test images, classes, size: the supplement's tables, image experiments then ImageNet experiments.
IMAGE_TABLES = {
    "tiny_imagenet_1": (50_000, 5_000, 100, 64),
    "tiny_imagenet_2": (50_000, 5_000, 100, 64),
    "cifar100": (50_000, 10_000, 100, 32),
    "stanford_dogs": (11_999, 8_580, 120, 84),
    "aircraft": (6_667, 3_333, 100, 84),
    "cub": (5_994, 5_794, 200, 84),
    "fashion_mnist": (60_000, 10_000, 10, 28),
    "svhn": (73_257, 26_032, 10, 32),
    "stanford_cars": (8_144, 8_041, 196, 84),
    "quickdraw": (34_500, 34_500, 345, 28),
    "vgg_flowers": (2_040, 6_149, 102, 84),
    "vgg_pets": (3_680, 3_669, 37, 84),
    "stl10": (5_000, 8_000, 10, 32),
}
IMAGENET_TABLE = {
    "cifar100": (50_000, 10_000, 100, 128),
    "cifar10": (50_000, 10_000, 10, 128),
    "svhn": (73_257, 26_032, 10, 128),
    "stanford_dogs": (11_999, 8_580, 120, 224),
    "vgg_pets": (3_680, 3_669, 37, 224),
    "vgg_flowers": (2_040, 6_149, 102, 224),
    "food101": (75_750, 25_250, 101, 224),
    "cub": (5_994, 5_794, 200, 224),
    "dtd": (4_230, 1_410, 47, 224),
}
GREY = ("fashion_mnist", "quickdraw", "dsprites", "norb")
WITHOUT_SUMS = (  # their publishers give none
    *("quickdraw", "resisc45", "patch_camelyon", "retinopathy", "dmlab", "kitti_distance"),
    *("dsprites_location", "dsprites_orientation", "norb_azimuth", "norb_elevation"),
)
DIFFERENT_ON_PURPOSE = {"stanford_dogs": (12_000, 8_580), "dtd": (3_760, 1_880)}


@pytest.mark.parametrize("table", [IMAGE_TABLES, IMAGENET_TABLE], ids=["image", "imagenet"])
def test_the_papers_tables(table):
    for name, (num_train, num_test, num_classes, size) in table.items():
        entry = CATALOG[name]
        assert (entry.num_train, entry.num_test) == DIFFERENT_ON_PURPOSE.get(name, (num_train, num_test))
        assert (name in DIFFERENT_ON_PURPOSE) <= bool(entry.note)
        assert entry.num_classes == num_classes
        assert (entry.image_size if table is IMAGE_TABLES else entry.imagenet_size) == size


def test_every_entry_is_complete():
    assert len(CATALOG) == 24 + 14
    for name, entry in CATALOG.items():
        assert name == entry.name
        assert NAME_PATTERN.fullmatch(name)
        assert entry.origin in READERS
        assert entry.licence
        assert entry.home.startswith("http")
        assert entry.split
        assert entry.files
        assert entry.channels == (1 if name.startswith(GREY) else 3)
        for file in entry.files:
            assert bool(file.url) != bool(entry.by_hand)
            assert len(file.md5) == (0 if name in WITHOUT_SUMS else 32)


def test_imagenet_splits_cover_the_thousand_classes():
    splits = json.loads((SOURCES_FOLDER / "imagenet_splits.json").read_text())["splits"]
    wnids = [wnid for split in splits for wnid in split["classes"]]
    assert len(wnids) == len(set(wnids)) == 1000
    for number, paper in enumerate((113, 131, 121, 121, 120, 95, 155, 144), 1):
        entry = CATALOG[f"imagenet_{number}"]
        assert entry.num_classes == len(splits[number - 1]["classes"])
        assert abs(entry.num_classes - paper) <= 19
        assert entry.num_test == 50 * entry.num_classes


def test_files_and_sums_are_torchvisions():
    from rayctsl.torchvision_import import import_torchvision

    sets = import_torchvision().datasets
    pets, flowers = sets.OxfordIIITPet, sets.Flowers102
    expected = {
        "cifar10": [(sets.CIFAR10.url, sets.CIFAR10.tgz_md5)],
        "cifar100": [(sets.CIFAR100.url, sets.CIFAR100.tgz_md5)],
        "fashion_mnist": [(sets.FashionMNIST.mirrors[0] + n, m) for n, m in sets.FashionMNIST.resources],
        "svhn": [(row[0], row[2]) for split, row in sets.SVHN.split_list.items() if split != "extra"],
        "stl10": [(sets.STL10.url, sets.STL10.tgz_md5)],
        "vgg_pets": list(pets._RESOURCES),
        "vgg_flowers": [(flowers._download_url_prefix + n, m) for n, m in flowers._file_dict.values()],
        "food101": [(sets.Food101._URL, sets.Food101._MD5)],
        "dtd": [(sets.DTD._URL, sets.DTD._MD5)],
    }
    for name, files in expected.items():
        assert [(file.url, file.md5) for file in CATALOG[name].files] == files
    assert CATALOG["aircraft"].files[0].url == sets.FGVCAircraft._URL


@pytest.mark.parametrize(
    ("text", "name", "size", "folder"),
    [
        ("cub", "cub", None, "cub"),
        ("cub@84", "cub", 84, "cub"),
        ("cub@224", "cub", 224, "cub@224"),
        ("mine@64", "mine", 64, "mine@64"),
        ("food101", "food101", None, "food101"),
    ],
)
def test_references(text, name, size, folder):
    reference = parse_reference(text)
    assert reference == Reference(name, size)
    assert reference.folder == folder
    assert str(reference) == text


@pytest.mark.parametrize("text", ["", "Cub", "../cub", "cub/..", "cub@", "cub@0", "cub@-1", "cub@9999", "cub@x", "_a"])
def test_bad_references(text):
    with pytest.raises(ValueError, match=r"name|size"):
        parse_reference(text)


@pytest.mark.parametrize(("wrong", "right"), [("cubs", "cub"), ("dogs", "stanford_dogs"), ("cifar_10", "cifar10")])
def test_unknown_names_are_guessed(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean '{right}'"):
        find_entry(wrong)


def test_hopeless_names_are_not():
    assert closest_name("qqqq", list(CATALOG)) is None
    with pytest.raises(ValueError, match="list shows all"):
        find_entry("qqqq")


def test_aliases_lead_somewhere():
    assert set(ALIASES.values()) <= set(CATALOG)
    assert not set(ALIASES) & set(CATALOG)


def test_letters_digits_and_directions_are_not_mirrored():
    assert not any(map(keeps_class_mirrored, ("svhn", "dsprites_orientation", "norb_azimuth")))
    assert all(map(keeps_class_mirrored, ("cub", "cifar100", "a name of my own")))
    assert keeps_class_mirrored("svhn", told=True)  # the dataset's own file knows better
    assert not keeps_class_mirrored("cub", told=False)
    assert set(CATALOG) >= NOT_MIRRORED
