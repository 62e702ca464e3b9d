"""The facts of every dataset of the paper, one entry each, with the publisher's files.

Counts and splits are the publishers'; a note says where the paper's tables differ. Sums are the publisher's or, where
it gives none, those that public loaders of the same file agree on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SOURCES_FOLDER = Path(__file__).parent / "sources"


@dataclass(frozen=True)
class RemoteFile:
    """One file of a publisher. Example: RemoteFile("lists.tar", "http://…/lists.tar", "edbb9f16…")"""

    name: str  # path below the origin's download folder
    url: str = ""  # empty: cannot be downloaded by a program
    md5: str = ""  # empty: the publisher gives none
    first_bytes: int = 0  # take only the beginning of the file; 0: all of it


@dataclass(frozen=True)
class Entry:
    """What is known about one dataset before it is prepared."""

    name: str
    title: str
    origin: str  # which source reads it, and the name of its download folder
    num_classes: int
    num_train: int | None  # None: not fixed by the publisher
    num_test: int
    image_size: int | None  # in the image experiments
    imagenet_size: int | None  # in the ImageNet experiments
    channels: int
    split: str
    licence: str
    home: str
    files: tuple[RemoteFile, ...]
    by_hand: str = ""  # why a program cannot download the files
    note: str = ""

    @property
    def size(self) -> int:
        """The size of the plain name: the image experiments', else the ImageNet experiments'."""
        size = self.image_size or self.imagenet_size
        assert size is not None
        return size


_VGG = "https://www.robots.ox.ac.uk/~vgg/data"
_DOGS = "http://vision.stanford.edu/aditya86/ImageNetDogs"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_QUICKDRAW = "https://storage.googleapis.com/quickdraw_dataset/full/numpy_bitmap"
_RESEARCH = "non-commercial research only"
_IMAGENET_TERMS = "ImageNet's terms of access: non-commercial research and education only"


def _tiny_imagenet(number: int, classes: str) -> Entry:
    return Entry(
        name=f"tiny_imagenet_{number}",
        title=f"Tiny ImageNet, split {number}",
        origin="tiny_imagenet",
        num_classes=100,
        num_train=50_000,
        num_test=5_000,
        image_size=64,
        imagenet_size=None,
        channels=3,
        split="the publisher's training and validation images",
        licence=_IMAGENET_TERMS,
        home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        files=(
            RemoteFile(
                "tiny-imagenet-200.zip",
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        note=f"classes {classes} in the order of their WordNet ids",
    )


def _imagenet(number: int, labels: list[str], num_classes: int) -> Entry:
    return Entry(
        name=f"imagenet_{number}",
        title=f"ImageNet, split {number}: {', '.join(labels).replace('_', ' ')}",
        origin="imagenet",
        num_classes=num_classes,
        num_train=None,
        num_test=50 * num_classes,
        image_size=None,
        imagenet_size=224,
        channels=3,
        split="training and validation images of ILSVRC 2012",
        licence=_IMAGENET_TERMS,
        home="https://image-net.org/challenges/LSVRC/2012/2012-downloads.php",
        files=(
            RemoteFile("ILSVRC2012_img_train.tar", md5="1d675b47d978889d74fa0da5fadfb00e"),
            RemoteFile("ILSVRC2012_img_val.tar", md5="29b22e2961454d5413ddabcf34fc5622"),
            RemoteFile("ILSVRC2012_devkit_t12.tar.gz", md5="fa75699e90414af021442c21a62c3abf"),
        ),
        by_hand="ImageNet asks for an account",
        note="folders train/<wnid>/ and val/<wnid>/ serve in place of the archives; "
        "the number of classes differs a little from the paper's, which prints no class list",
    )


def all_entries() -> list[Entry]:
    splits = json.loads((SOURCES_FOLDER / "imagenet_splits.json").read_text())["splits"]
    quickdraw_classes = json.loads((SOURCES_FOLDER / "quickdraw_classes.json").read_text())
    return [
        _tiny_imagenet(1, "1-100"),
        _tiny_imagenet(2, "101-200"),
        Entry(
            name="cifar100",
            title="CIFAR-100",
            origin="cifar100",
            num_classes=100,
            num_train=50_000,
            num_test=10_000,
            image_size=32,
            imagenet_size=128,
            channels=3,
            split="official",
            licence="none stated; cite Krizhevsky 2009",
            home="https://www.cs.toronto.edu/~kriz/cifar.html",
            files=(
                RemoteFile(
                    "cifar-100-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                    "eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
        ),
        Entry(
            name="stanford_dogs",
            title="Stanford Dogs",
            origin="stanford_dogs",
            num_classes=120,
            num_train=12_000,
            num_test=8_580,
            image_size=84,
            imagenet_size=224,
            channels=3,
            split="official lists",
            licence=_IMAGENET_TERMS,
            home=f"{_DOGS}/",
            files=(
                RemoteFile("images.tar", f"{_DOGS}/images.tar", "1bb1f2a596ae7057f99d7d75860002ef"),
                RemoteFile("lists.tar", f"{_DOGS}/lists.tar", "edbb9f16854ec66506b5f09b583e0656"),
            ),
            note="the paper counts 11,999 training images, one fewer than the official list",
        ),
        Entry(
            name="aircraft",
            title="FGVC Aircraft",
            origin="aircraft",
            num_classes=100,
            num_train=6_667,
            num_test=3_333,
            image_size=84,
            imagenet_size=None,
            channels=3,
            split="official trainval and test, 100 variants",
            licence=_RESEARCH,
            home=f"{_VGG}/fgvc-aircraft/",
            files=(
                RemoteFile(
                    "fgvc-aircraft-2013b.tar.gz",
                    f"{_VGG}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
                    "d4acdd33327262359767eeaa97a4f732",
                ),
            ),
        ),
        Entry(
            name="cub",
            title="Caltech-UCSD Birds-200-2011",
            origin="cub",
            num_classes=200,
            num_train=5_994,
            num_test=5_794,
            image_size=84,
            imagenet_size=224,
            channels=3,
            split="official train_test_split.txt",
            licence=_RESEARCH,
            home="https://data.caltech.edu/records/65de6-vp158",
            files=(
                RemoteFile(
                    "CUB_200_2011.tgz",
                    "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                    "97eceeb196236b17998738112f37df78",
                ),
            ),
        ),
        Entry(
            name="fashion_mnist",
            title="Fashion-MNIST",
            origin="fashion_mnist",
            num_classes=10,
            num_train=60_000,
            num_test=10_000,
            image_size=28,
            imagenet_size=None,
            channels=1,
            split="official",
            licence="MIT",
            home="https://github.com/zalandoresearch/fashion-mnist",
            files=tuple(
                RemoteFile(f"{name}-ubyte.gz", f"{_FASHION}/{name}-ubyte.gz", md5)
                for name, md5 in (
                    ("train-images-idx3", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                    ("train-labels-idx1", "25c81989df183df01b3e8a0aad5dffbe"),
                    ("t10k-images-idx3", "bef4ecab320f06d8554ea6380940ec79"),
                    ("t10k-labels-idx1", "bb300cfdad3c16e7a12a480ee83cd310"),
                )
            ),
        ),
        Entry(
            name="svhn",
            title="Street View House Numbers",
            origin="svhn",
            num_classes=10,
            num_train=73_257,
            num_test=26_032,
            image_size=32,
            imagenet_size=128,
            channels=3,
            split="official train and test, without the extra images",
            licence="non-commercial use only",
            home=f"{_SVHN}/",
            files=(
                RemoteFile("train_32x32.mat", f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
                RemoteFile("test_32x32.mat", f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
            ),
        ),
        Entry(
            name="stanford_cars",
            title="Stanford Cars",
            origin="stanford_cars",
            num_classes=196,
            num_train=8_144,
            num_test=8_041,
            image_size=84,
            imagenet_size=None,
            channels=3,
            split="official",
            licence=_IMAGENET_TERMS,
            home="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
            files=(
                RemoteFile("cars_train.tgz", md5="065e5b463ae28d29e77c1b4b166cfe61"),
                RemoteFile("cars_test.tgz", md5="4ce7ebf6a94d07f1952d94dd34c4d501"),
                RemoteFile("car_devkit.tgz", md5="c3b158d763b6e2245038c8ad08e45376"),
                RemoteFile("cars_test_annos_withlabels.mat", md5="b0a2b23655a3edd16d84508592a98d10"),
            ),
            by_hand="the publisher's site is gone, mirrors have the files",
        ),
        Entry(
            name="quickdraw",
            title="Quick, Draw!",
            origin="quickdraw",
            num_classes=345,
            num_train=34_500,
            num_test=34_500,
            image_size=28,
            imagenet_size=None,
            channels=1,
            split="of the first 200 drawings of a class, 100 drawn with a fixed seed for training, 100 for testing",
            licence="CC BY 4.0",
            home="https://github.com/googlecreativelab/quickdraw-dataset",
            files=tuple(
                # 200 drawings of 784 bytes after the header; the whole files are 40 GB.
                RemoteFile(f"{name}.npy", f"{_QUICKDRAW}/{quote(name)}.npy", first_bytes=160_000)
                for name in quickdraw_classes
            ),
            note="the publisher has no split and gives no sums; the paper only says 100 + 100 a class",
        ),
        Entry(
            name="vgg_flowers",
            title="VGG Flowers (Oxford 102)",
            origin="vgg_flowers",
            num_classes=102,
            num_train=2_040,
            num_test=6_149,
            image_size=84,
            imagenet_size=224,
            channels=3,
            split="official train + val for training, test",
            licence="none stated; research use",
            home=f"{_VGG}/flowers/102/",
            files=tuple(
                RemoteFile(name, f"{_VGG}/flowers/102/{name}", md5)
                for name, md5 in (
                    ("102flowers.tgz", "52808999861908f626f3c1f4e79d11fa"),
                    ("imagelabels.mat", "e0620be6f572b9609742df49c70aed4d"),
                    ("setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c"),
                )
            ),
        ),
        Entry(
            name="vgg_pets",
            title="VGG Pets (Oxford-IIIT)",
            origin="vgg_pets",
            num_classes=37,
            num_train=3_680,
            num_test=3_669,
            image_size=84,
            imagenet_size=224,
            channels=3,
            split="official trainval and test",
            licence="CC BY-SA 4.0",
            home=f"{_VGG}/pets/",
            files=(
                RemoteFile("images.tar.gz", f"{_VGG}/pets/data/images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c"),
                RemoteFile(
                    "annotations.tar.gz", f"{_VGG}/pets/data/annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f"
                ),
            ),
        ),
        Entry(
            name="stl10",
            title="STL-10",
            origin="stl10",
            num_classes=10,
            num_train=5_000,
            num_test=8_000,
            image_size=32,
            imagenet_size=None,
            channels=3,
            split="official, without the unlabelled images",
            licence=_IMAGENET_TERMS,
            home="https://cs.stanford.edu/~acoates/stl10/",
            files=(
                RemoteFile(
                    "stl10_binary.tar.gz",
                    "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
                    "91f7769df0f17e558f3565bffb0c7dfb",
                ),
            ),
        ),
        Entry(
            name="cifar10",
            title="CIFAR-10",
            origin="cifar10",
            num_classes=10,
            num_train=50_000,
            num_test=10_000,
            image_size=32,
            imagenet_size=128,
            channels=3,
            split="official",
            licence="none stated; cite Krizhevsky 2009",
            home="https://www.cs.toronto.edu/~kriz/cifar.html",
            files=(
                RemoteFile(
                    "cifar-10-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    "c58f30108f718f92721af3b95e74349a",
                ),
            ),
            note="the paper has it only in the ImageNet experiments; 32 is its own size",
        ),
        Entry(
            name="food101",
            title="Food-101",
            origin="food101",
            num_classes=101,
            num_train=75_750,
            num_test=25_250,
            image_size=None,
            imagenet_size=224,
            channels=3,
            split="official",
            licence="none stated; research use",
            home="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
            files=(
                RemoteFile(
                    "food-101.tar.gz",
                    "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                    "85eeb15f3717b99a5da872d97d918f87",
                ),
            ),
        ),
        Entry(
            name="dtd",
            title="Describable Textures",
            origin="dtd",
            num_classes=47,
            num_train=3_760,
            num_test=1_880,
            image_size=None,
            imagenet_size=224,
            channels=3,
            split="official train + val for training, test, of partition 1",
            licence="research use only",
            home=f"{_VGG}/dtd/",
            files=(
                RemoteFile(
                    "dtd-r1.0.1.tar.gz",
                    f"{_VGG}/dtd/download/dtd-r1.0.1.tar.gz",
                    "fff73e5086ae6bdbea199a49dfb8a4c1",
                ),
            ),
            note="the paper counts 4,230 / 1,410, which no official split gives; these are the nearest",
        ),
        *(_imagenet(split["split"], split["labels"], len(split["classes"])) for split in splits),
    ]
