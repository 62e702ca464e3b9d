"""Import of image folders and .npz files, and the one sentence for each thing that can be wrong with them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from rayctsl.data.check import problems
from rayctsl.data.importing import MAX_SIDE, import_dataset
from rayctsl.data.library import open_dataset


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


def save_images(folder: Path, counts: dict[str, int], mode: str = "RGB", suffix: str = ".png") -> None:
    for number, (name, count) in enumerate(counts.items()):
        for image in range(count):
            path = folder / name / f"{image}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30, 20), (40 * number, 3 * image, 90)).convert(mode).save(path)


SCRIPT = """
from pathlib import Path
from rayctsl.data.importing import import_dataset
import_dataset("mine", Path("mine"), "root", workers=2)
print("done")
"""


@pytest.mark.parametrize("way", ["a file", "stdin"])
def test_a_script_may_import_without_asking_whether_it_is_the_main_module(way, tmp_path, python):
    """The processes that decode do not run it again: that would wait for the lock that the first run holds."""
    save_images(tmp_path / "mine", {"ant": 20, "bee": 20})
    (tmp_path / "script.py").write_text(SCRIPT)
    with (tmp_path / "script.py").open() as script:
        program = subprocess.Popen(
            [python, "script.py" if way == "a file" else "-"],
            **dict.fromkeys(("stdout", "stderr"), subprocess.PIPE),
            stdin=script,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},  # this checkout
            start_new_session=True,
        )
    try:
        said, errors = program.communicate(timeout=30)
        assert said == "done\n", errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def arrays(count=12, shape=(8, 8, 3), **changes):
    rng = np.random.default_rng(0)
    values = {
        "x_train": rng.integers(0, 256, (count, *shape), dtype=np.uint8),
        "y_train": np.arange(count) % 3,
        "x_test": rng.integers(0, 256, (6, *shape), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
        "class_names": np.array(["ant", "bee", "cat"]),
    }
    return {key: value for key, value in (values | changes).items() if value is not None}


def test_folder_with_train_and_test(tmp_path, root):
    save_images(tmp_path / "mine" / "train", {"dog": 4, "ant/nested": 3, "bee": 5})
    save_images(tmp_path / "mine" / "test", {"bee": 1, "ant": 2})
    (tmp_path / "mine" / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "mine" / "train" / ".hidden").mkdir()
    (tmp_path / "mine" / "train" / "dog" / "._0.png").write_text("what some systems put beside a picture")
    import_dataset("mine", tmp_path / "mine", root, workers=1)
    dataset = open_dataset("mine", root)
    assert dataset.train.info.class_names == ("ant", "bee", "dog")
    assert np.bincount(dataset.train.labels).tolist() == [3, 5, 4]
    assert np.bincount(dataset.test.labels).tolist() == [2, 1]
    assert dataset.train.info.shape == (20, 20, 3)  # the pictures' own size
    assert dataset.train.info.source == "imported from mine"
    # dog is the first folder saved: its images have no red.
    reds = dataset.train.images(np.flatnonzero(dataset.train.labels == 2))[..., 0]
    assert (reds == 0).all()
    assert problems(dataset) == []


@pytest.mark.parametrize(("train", "test"), [("Training", "Testing"), ("Train", "Test"), ("TRAIN", "testing")])
def test_the_splits_may_be_spelt_otherwise(train, test, tmp_path, root):
    save_images(tmp_path / "mine" / train, {"ant": 3, "bee": 4})
    save_images(tmp_path / "mine" / test, {"ant": 2, "bee": 1})
    import_dataset("mine", tmp_path / "mine", root, workers=1)
    dataset = open_dataset("mine", root)
    assert dataset.train.info.class_names == ("ant", "bee")
    assert np.bincount(dataset.train.labels).tolist() == [3, 4]
    assert np.bincount(dataset.test.labels).tolist() == [2, 1]


@pytest.mark.parametrize(
    "folders",
    [("Training", "Validation"), ("train", "val"), ("Train", "train", "test"), ("valid", "Test"), ("test", "ant")],
)
def test_splits_that_are_not_understood_are_no_classes(folders, tmp_path, root):
    for folder in folders:
        save_images(tmp_path / "mine" / folder, {"cat": 2, "dog": 2})
    with pytest.raises(ValueError, match=r"wanted are train/ and test/ with a folder for every class in both, or"):
        import_dataset("mine", tmp_path / "mine", root, workers=1)


def test_classes_may_be_called_like_splits(tmp_path, root):
    save_images(tmp_path / "vehicles", {"Train": 5, "car": 5})
    import_dataset("vehicles", tmp_path / "vehicles", root, workers=1)
    save_images(tmp_path / "forms", {"valid/2020": 5, "invalid/2020": 5})
    import_dataset("forms", tmp_path / "forms", root, workers=1)
    assert open_dataset("vehicles", root).train.info.class_names == ("Train", "car")
    assert open_dataset("forms", root).train.info.class_names == ("invalid", "valid")


def save_album(folder: Path, columns: tuple[str, str] = ("FILE_NAME", "CATEGORY"), images: str = "images") -> None:
    """Meta-Album's layout: labels.csv, info.json, and a folder of images."""
    (folder / images).mkdir(parents=True, exist_ok=True)
    rows = [(f"{name}_{number}.jpg", name) for name in ("wasp", "bee") for number in range(10)]
    for file, name in rows:
        Image.new("RGB", (128, 128), (200 if name == "bee" else 20, 0, 0)).save(folder / images / file)
    lines = [f"{columns[0]},{columns[1]},SUPER_CATEGORY", *(f"{file},{name},insect" for file, name in rows)]
    (folder / "labels.csv").write_text("\n".join(lines))
    info = {"image_column_name": columns[0], "category_column_name": columns[1], "total_categories": 2}
    (folder / "info.json").write_text(json.dumps(info))


@pytest.mark.parametrize("columns", [("FILE_NAME", "CATEGORY"), ("picture", "kind")])
@pytest.mark.parametrize("images", ["images", "."])
def test_a_meta_album(tmp_path, root, columns, images):
    save_album(tmp_path / "INS_Micro", columns, images)
    import_dataset("ins_micro", tmp_path / "INS_Micro", root, size=16, workers=1)
    dataset = open_dataset("ins_micro", root)
    assert dataset.train.info.class_names == ("bee", "wasp")
    assert np.bincount(dataset.train.labels).tolist() == [8, 8]
    assert np.bincount(dataset.test.labels).tolist() == [2, 2]
    reds = dataset.train.images(np.flatnonzero(dataset.train.labels == 0))[..., 0]
    assert (reds > 150).all()


@pytest.mark.parametrize("name", ["labels.csv", "info.json"])
def test_a_meta_album_that_a_spreadsheet_has_written(name, tmp_path, root):
    """Excel and others begin UTF-8 with a mark of its own."""
    save_album(tmp_path / "INS_Micro")
    path = tmp_path / "INS_Micro" / name
    path.write_text(path.read_text(), encoding="utf-8-sig")
    import_dataset("ins_micro", tmp_path / "INS_Micro", root, size=16, workers=1)
    assert open_dataset("ins_micro", root).train.info.class_names == ("bee", "wasp")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("FILE_NAME,KIND\na.jpg,bee\n", "has no column 'CATEGORY'"),
        ("FILE_NAME,CATEGORY\nlost.jpg,bee\n", "line 2: there is no image 'lost.jpg'"),
        ("FILE_NAME,CATEGORY\n../../secret.jpg,bee\n", "line 2: there is no image 'secret.jpg'"),
        ("FILE_NAME,CATEGORY\n", "lists no images"),
    ],
)
def test_a_broken_meta_album_is_refused(tmp_path, root, labels, message):
    save_album(tmp_path / "INS_Micro")
    (tmp_path / "secret.jpg").write_bytes(next(tmp_path.rglob("*.jpg")).read_bytes())
    (tmp_path / "INS_Micro" / "labels.csv").write_text(labels)
    with pytest.raises(ValueError, match=message):
        import_dataset("ins_micro", tmp_path / "INS_Micro", root, workers=1)


def test_one_level_is_split_with_the_seed(tmp_path, root):
    save_images(tmp_path / "mine", {"ant": 20, "bee": 10, "cat": 1, "dog": 4, "eel": 2})
    sums = []
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        import_dataset(name, tmp_path / "mine", root, size=16, seed=seed, workers=1)
        dataset = open_dataset(name, root)
        assert np.bincount(dataset.train.labels).tolist() == [16, 8, 1, 3, 1]
        assert np.bincount(dataset.test.labels).tolist() == [4, 2, 0, 1, 1]
        sums.append(dataset.train.info.checksum)
        images = [split.images(np.arange(len(split))) for split in (dataset.train, dataset.test)]
        seen = {(int(image[0, 0, 0]), int(image[0, 0, 1])) for part in images for image in part}
        assert len(seen) == 37, "an image is in both splits"
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_grey_folders_stay_grey(mode, channels, tmp_path, root):
    save_images(tmp_path / "mine", {"ant": 4, "bee": 4}, mode)
    import_dataset("mine", tmp_path / "mine", root, size=8, workers=1)
    assert open_dataset("mine", root).train.info.shape == (8, 8, channels)


def test_one_picture_in_colour_keeps_all_of_them_in_colour(tmp_path, root):
    save_images(tmp_path / "mine", {"ant": 4, "bee": 4}, "L")
    save_images(tmp_path / "mine", {"bee": 1}, "RGB")
    import_dataset("mine", tmp_path / "mine", root, size=8, workers=1)
    assert open_dataset("mine", root).train.info.shape == (8, 8, 3)


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 3), (5, 7, 3)])
def test_npz(shape, tmp_path, root):
    given = arrays(shape=shape)
    np.savez_compressed(tmp_path / "a.npz", **given)
    import_dataset("mine", tmp_path / "a.npz", root)
    dataset = open_dataset("mine", root)
    expected = given["x_train"].reshape(12, *shape[:2], -1)
    np.testing.assert_array_equal(dataset.train.images(np.arange(12)), expected)
    np.testing.assert_array_equal(dataset.test.labels, given["y_test"])
    assert dataset.train.info.class_names == ("ant", "bee", "cat")


def test_npz_without_names_and_with_a_size(tmp_path, root):
    np.savez(tmp_path / "a.npz", **arrays(class_names=None, y_train=(np.arange(12) % 3).astype(np.uint8)))
    import_dataset("mine", tmp_path / "a.npz", root, size=16, workers=1)
    info = open_dataset("mine@16", root).train.info
    assert info.class_names == ("0", "1", "2")
    assert info.shape == (16, 16, 3)


BAD_ARRAYS = {
    "floats": ({"x_train": np.zeros((12, 8, 8, 3), np.float32)}, "x_train must be uint8"),
    "flat": ({"x_train": np.zeros((12, 64), np.uint8)}, "x_train must be"),
    "four channels": ({"x_test": np.zeros((6, 8, 8, 4), np.uint8)}, "x_test must be"),
    "no image": ({"x_test": np.zeros((0, 8, 8, 3), np.uint8), "y_test": np.zeros(0, int)}, "x_test is empty"),
    "other shape": ({"x_test": np.zeros((6, 9, 9, 3), np.uint8)}, "x_train has images of"),
    "label count": ({"y_train": np.zeros(11, int)}, "12 images in x_train but 11 labels"),
    "label kind": ({"y_train": np.zeros(12)}, "y_train must be whole numbers"),
    "label shape": ({"y_test": np.zeros((6, 1), int)}, "y_test must be one-dimensional"),
    "negative": ({"y_test": np.arange(6) - 1}, "negative label -1"),
    "unnamed": ({"y_train": np.arange(12)}, "label 11 has no name"),
    "names": ({"class_names": np.array([1, 2, 3])}, "class_names must be"),
    "missing": ({"y_test": None}, "has no y_test"),
    "objects": ({"class_names": np.array(["a", None, "b"], object)}, "Python objects"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_npz_is_refused_in_one_sentence(case, tmp_path, root):
    changes, reason = BAD_ARRAYS[case]
    np.savez(tmp_path / "a.npz", **arrays(**changes))
    with pytest.raises(ValueError, match=reason) as caught:
        import_dataset("mine", tmp_path / "a.npz", root, workers=1)
    assert "\n" not in str(caught.value)
    assert "a.npz" in str(caught.value)
    assert list(Path(root).glob("*mine*")) == []


@pytest.mark.parametrize("content", [b"", b"no zip at all", None])
def test_files_that_are_no_npz(content, tmp_path, root):
    np.savez(tmp_path / "a.npz", **arrays())
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ValueError, match=r"a\.npz is not a readable \.npz file"):
        import_dataset("mine", tmp_path / "a.npz", root)


def test_an_npz_with_a_damaged_array_is_refused(tmp_path, root):
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[60:90] = b"\xff" * 30  # of the first array
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is not a readable \.npz file"):
        import_dataset("mine", tmp_path / "a.npz", root)


def test_bad_folders(tmp_path, root):
    def refused(folder, reason):
        with pytest.raises(ValueError, match=reason):
            import_dataset("mine", folder, root, workers=1)
        assert list(Path(root).glob("*mine*")) == []

    refused(tmp_path / "nowhere", "does not exist")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "has no class folders")
    save_images(tmp_path / "half" / "train", {"ant": 2})
    refused(tmp_path / "half", "half has train/: wanted are train/ and test/ with a folder for every class")
    save_images(tmp_path / "half" / "test", {"bee": 2})
    refused(tmp_path / "half", "class 'bee' is in test/ but not in train/")
    save_images(tmp_path / "bare", {"ant": 2})
    (tmp_path / "bare" / "bee").mkdir()
    refused(tmp_path / "bare", "bee has no images")
    save_images(tmp_path / "few", {"ant": 1, "bee": 1})
    refused(tmp_path / "few", "no images are left for the test split")
    save_images(tmp_path / "torn", {"ant": 5, "bee": 5})
    (tmp_path / "torn" / "ant" / "3.png").write_bytes(b"torn")
    refused(tmp_path / "torn", r"1 image cannot be read: ant/3\.png")
    for picture in (tmp_path / "torn").rglob("*.png"):
        picture.write_bytes(b"torn")
    refused(tmp_path / "torn", r"10 images cannot be read: ant/")


@pytest.mark.parametrize("name", ["Mine", "_mine", "mi ne", "../mine", "mine@32", "", "digits"])
def test_bad_names(name, tmp_path, root):
    np.savez(tmp_path / "a.npz", **arrays())
    with pytest.raises(ValueError, match=r"not a usable name|embedded"):
        import_dataset(name, tmp_path / "a.npz", root)


def test_an_embedded_dataset_is_not_replaced_by_pictures(tmp_path, root):
    np.savez(tmp_path / "a.npz", **arrays())
    with pytest.raises(ValueError, match="'digits' is an embedded dataset; choose another name"):
        import_dataset("digits", tmp_path / "a.npz", root, replace=True)


def test_used_names_need_replace_and_old_maps_live_on(tmp_path, root):
    np.savez(tmp_path / "a.npz", **arrays())
    import_dataset("mine", tmp_path / "a.npz", root)
    old = open_dataset("mine", root)
    before = old.train.images(np.arange(12)).copy()
    np.savez(tmp_path / "b.npz", **arrays(count=9))
    with pytest.raises(ValueError, match=r"already in .* --replace"):
        import_dataset("mine", tmp_path / "b.npz", root)
    import_dataset("mine", tmp_path / "b.npz", root, replace=True)
    assert len(open_dataset("mine", root).train) == 9
    np.testing.assert_array_equal(old.train.images(np.arange(12)), before)
    assert sorted(p.name for p in Path(root).iterdir()) == [".locks", "mine"]


def draw(kind: int, size: int, mode: str, shade: int) -> np.ndarray:
    """A disc, a cross or stripes."""
    image = Image.new(mode, (size, size), 20)
    pen, ink = ImageDraw.Draw(image), (shade if mode == "L" else (shade, 255 - shade, 80))
    if kind == 0:
        pen.ellipse((size // 4, size // 4, 3 * size // 4, 3 * size // 4), fill=ink)
    for place in range(0, size, max(1, size // (4 if kind == 1 else 8))):
        if kind == 1:
            pen.line((size // 2, 0, size // 2, size), fill=ink, width=place // 8 + 1)
        elif kind == 2:
            pen.line((0, place, size, place), fill=ink)
    return np.asarray(image).copy()


@pytest.mark.parametrize(("mode", "size"), [("L", 28), ("RGB", 32), ("RGB", 84)])
def test_pictures_come_back_as_they_were_packed(tmp_path, root, mode, size):
    names = np.array(["disc", "cross", "stripes"])
    pack = {"class_names": names}
    for split, count in (("train", 36), ("test", 12)):
        labels = np.arange(count) % 3
        pack[f"y_{split}"] = labels
        pack[f"x_{split}"] = np.stack([draw(kind, size, mode, 100 + 4 * n) for n, kind in enumerate(labels)])
    np.savez_compressed(tmp_path / "drawn.npz", **pack)
    import_dataset("drawn", tmp_path / "drawn.npz", root, workers=1)
    dataset = open_dataset("drawn", root)
    for split in (dataset.train, dataset.test):
        given = pack[f"x_{split.info.split}"]
        np.testing.assert_array_equal(split.images(np.arange(len(split))).reshape(given.shape), given)
        np.testing.assert_array_equal(split.labels, pack[f"y_{split.info.split}"])
    assert dataset.train.info.class_names == tuple(names.tolist())
    assert dataset.train.info.shape == (size, size, 1 if mode == "L" else 3)
    assert problems(dataset) == []


@pytest.mark.parametrize(("sizes", "side"), [((20, 20, 20, 60), 20), ((20, 60, 60, 60), 60), ((900,) * 4, MAX_SIDE)])
def test_pictures_keep_the_size_that_half_of_them_reach_up_to_a_limit(sizes, side, tmp_path, root):
    for number, size in enumerate(sizes):
        for kind in ("cat", "dog"):
            (tmp_path / "in" / kind).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (size, size), (number, 0, 0)).save(tmp_path / "in" / kind / f"{number}.png")
    import_dataset("mine", tmp_path / "in", root, workers=1)
    assert open_dataset("mine", root).train.info.shape == (side, side, 3)


@pytest.mark.parametrize("flip", [True, False])
def test_the_import_knows_whether_mirror_images_keep_their_class(flip, tmp_path, root):
    for kind in ("b", "d"):
        (tmp_path / "in" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / "in" / kind / f"{number}.png")
    import_dataset("letters", tmp_path / "in", root, workers=1, flip=flip)
    assert open_dataset("letters", root).may_flip == flip
