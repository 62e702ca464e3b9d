"""The facts of VTAB's datasets (Zhai et al., 2019) that the paper does not have; five of its nineteen are among those.

VTAB splits by the order of TensorFlow Datasets. Where the publisher has no split, a seeded one of the same size stands
for it, and a note says so.
"""

from __future__ import annotations

from rayctsl.data.entries import Entry, RemoteFile

_NORB = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
_KITTI = "https://s3.eu-central-1.amazonaws.com/avg-kitti"
_SEEDED = "the publisher has no split: a seeded one of the size of VTAB's"
_ZENODO = "https://zenodo.org/record/2546921/files"


def vtab_entries() -> list[Entry]:
    return [*_photographs(), *_specialized(), *_rendered(), *_views(), _kitti(), _dmlab()]


def _entry(
    name: str,
    title: str,
    origin: str,
    counts: tuple[int, int, int],
    split: str,
    licence: str,
    home: str,
    files: tuple[RemoteFile, ...],
    *,
    channels: int = 3,
    by_hand: str = "",
    note: str = "",
) -> Entry:
    """An entry of VTAB's size, 224. Counts are classes, training images, test images."""
    num_classes, num_train, num_test = counts
    facts = (num_classes, num_train, num_test, None, 224, channels)
    return Entry(name, title, origin, *facts, split, licence, home, files, by_hand, note)


def _photographs() -> list[Entry]:
    caltech = "https://data.caltech.edu/records/mzrjq-6wc02"
    sun = "http://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz"
    return [
        _entry(
            "caltech101",
            "Caltech-101",
            "caltech101",
            (102, 3_060, 6_084),
            "seeded: 30 images of every class for training",
            "CC BY 4.0",
            caltech,
            (RemoteFile("caltech-101.zip", f"{caltech}/files/caltech-101.zip", "3138e1922a9193bfa496528edbbc45d0"),),
            note=_SEEDED,
        ),
        _entry(
            "sun397",
            "SUN397",
            "sun397",
            (397, 87_004, 21_750),
            "seeded: a fifth for the test",
            "research use only",
            "https://vision.princeton.edu/projects/2010/SUN/",
            (RemoteFile("SUN397.tar.gz", sun, "8ca2778205c41d23104230ba66911c7a"),),
            note=_SEEDED,
        ),
    ]


def _specialized() -> list[Entry]:
    eurosat = "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd"
    parts = [(word, part) for word in ("train", "valid", "test") for part in "xy"]
    pcam = [f"camelyonpatch_level_2_split_{word}_{part}.h5.gz" for word, part in parts]
    kaggle = ("train.zip", "test.zip", "trainLabels.csv.zip", "retinopathy_solution.csv")
    return [
        _entry(
            "eurosat",
            "EuroSAT, visible bands",
            "eurosat",
            (10, 21_600, 5_400),
            "seeded: a fifth for the test",
            "MIT",
            "https://github.com/phelber/eurosat",
            (RemoteFile("EuroSAT.zip", f"{eurosat}/EuroSAT.zip", "c8fa014336c82ac7804f0398fcb19387"),),
            note=_SEEDED,
        ),
        _entry(
            "resisc45",
            "NWPU-RESISC45",
            "resisc45",
            (45, 25_200, 6_300),
            "seeded: a fifth for the test",
            "research use only",
            "https://gcheng-nwpu.github.io/#Datasets",
            (RemoteFile("NWPU-RESISC45.zip"),),
            by_hand="the publisher's file is a .rar behind a form: unpack it and pack the folder as a zip",
            note=_SEEDED,
        ),
        _entry(
            "patch_camelyon",
            "PatchCamelyon",
            "patch_camelyon",
            (2, 294_912, 32_768),
            "official train + valid for training, test",
            "CC0",
            "https://github.com/basveeling/pcam",
            tuple(RemoteFile(name, f"{_ZENODO}/{name}?download=1") for name in pcam),
        ),
        _entry(
            "retinopathy",
            "Diabetic Retinopathy",
            "retinopathy",
            (5, 35_126, 53_576),
            "the competition's",
            "the competition's rules",
            "https://www.kaggle.com/c/diabetic-retinopathy-detection/data",
            tuple(RemoteFile(name) for name in kaggle),
            by_hand="Kaggle asks for an account; join the parts first: cat train.zip.0* > train.zip",
            note="VTAB takes 42,670 of the test images, those of the private part",
        ),
    ]


def _rendered() -> list[Entry]:
    clevr = "https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip"
    sprites = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    home = "https://github.com/google-deepmind/dsprites-dataset"
    tasks = [
        ("clevr_count", "CLEVR, number of objects", 8),
        ("clevr_distance", "CLEVR, distance of the nearest object", 6),
    ]
    made = [
        _entry(
            name,
            title,
            "clevr",
            (num_classes, 70_000, 15_000),
            "the publisher's training and validation images",
            "CC BY 4.0",
            "https://cs.stanford.edu/people/jcjohns/clevr/",
            (RemoteFile("CLEVR_v1.0.zip", clevr, "b11922020e72d0cd9154779b2d3d07d2"),),
        )
        for name, title, num_classes in tasks
    ]
    return made + [
        _entry(
            f"dsprites_{factor}",
            f"dSprites, {factor}",
            "dsprites",
            (16, 663_552, 73_728),
            "seeded: a tenth for the test",
            "zlib/libpng",
            home,
            (RemoteFile(sprites, f"{home}/raw/master/{sprites}"),),
            channels=1,
            note=_SEEDED,
        )
        for factor in ("location", "orientation")
    ]


def _views() -> list[Entry]:
    names = [
        f"smallnorb-5x{toys}x9x18x6x2x96x96-{word}-{kind}.mat.gz"
        for word, toys in (("training", "46789"), ("testing", "01235"))
        for kind in ("dat", "info")
    ]
    return [
        _entry(
            f"norb_{factor}",
            f"small NORB, {factor}",
            "small_norb",
            (num_classes, 24_300, 24_300),
            "official",
            "research use only",
            f"{_NORB}/",
            tuple(RemoteFile(name, f"{_NORB}/{name}") for name in names),
            channels=1,
            note="VTAB tests on half of the test images",
        )
        for factor, num_classes in (("azimuth", 18), ("elevation", 9))
    ]


def _kitti() -> Entry:
    names = ("data_object_image_2.zip", "data_object_label_2.zip")
    return _entry(
        "kitti_distance",
        "KITTI, distance of the nearest vehicle",
        "kitti",
        (4, 6_733, 748),
        "seeded: a tenth for the test",
        "CC BY-NC-SA 3.0",
        "https://www.cvlibs.net/datasets/kitti/eval_object.php?obj_benchmark=2d",
        tuple(RemoteFile(name, f"{_KITTI}/{name}") for name in names),
        note="VTAB splits by drives, 6,770 and 711; " + _SEEDED.split(":")[0],
    )


def _dmlab() -> Entry:
    return _entry(
        "dmlab",
        "DMLab frames",
        "dmlab",
        (6, 88_178, 22_735),
        "official train + validation for training, test",
        "Apache 2.0",
        "https://github.com/google-research/task_adaptation",
        (RemoteFile("dmlab.tar.gz", "https://storage.googleapis.com/dmlab-vtab/dmlab.tar.gz"),),
    )
