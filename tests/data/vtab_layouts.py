"""Small archives in the true layouts of VTAB's datasets, made like those of `layouts.py`."""

from __future__ import annotations

import gzip
import io
import json
import struct

import h5py
import numpy as np

from tests.data.layouts import colour_of, picture, tar_bytes

Files = dict[str, dict[str, bytes] | bytes]


def grey(label: int, side: int) -> np.ndarray:
    return np.full((side, side), colour_of(label, "train")[0], np.uint8)


def make_caltech101() -> Files:
    inner = {}
    for label, name in enumerate(("BACKGROUND_Google", "accordion")):
        for number in range(32 + label):
            inner[f"101_ObjectCategories/{name}/image_{number + 1:04d}.jpg"] = picture(label, "train")
    notes = {"Annotations/accordion/annotation_0001.mat": b"outline"}
    return {
        "caltech-101.zip": {
            "caltech-101/101_ObjectCategories.tar.gz": tar_bytes(inner, "gz"),
            "caltech-101/Annotations.tar": tar_bytes(notes),
        }
    }


def make_sun397() -> Files:
    classes = ["a/abbey", "a/apartment_building/outdoor", "z/zoo"]
    files = {
        f"SUN397/{name}/sun_{number}.jpg": picture(label, "train")
        for label, name in enumerate(classes)
        for number in range(5)
    }
    return {"SUN397.tar.gz": {**files, "SUN397/ClassName.txt": b"/a/abbey\n"}}


def make_folders(archive: str, top: str, classes: tuple[str, ...]) -> Files:
    names = [(label, name, number) for label, name in enumerate(classes) for number in range(5)]
    return {archive: {f"{top}/{name}/{name}_{n + 1}.jpg": picture(label, "train") for label, name, n in names}}


def make_patch_camelyon() -> Files:
    files: Files = {}
    for word, count in (("train", 4), ("valid", 2), ("test", 3)):
        labels = np.arange(count) % 2
        patches = np.stack([np.broadcast_to(colour_of(int(label), "train"), (96, 96, 3)) for label in labels])
        for part, array in (("x", patches.astype(np.uint8)), ("y", labels.reshape(-1, 1, 1, 1).astype(np.uint8))):
            out = io.BytesIO()
            with h5py.File(out, "w") as file:
                file[part] = array
            files[f"camelyonpatch_level_2_split_{word}_{part}.h5.gz"] = gzip.compress(out.getvalue())
    return files


def make_retinopathy() -> Files:
    grades = {f"{number}_{eye}": number % 5 for number in range(1, 6) for eye in ("left", "right")}
    rows = "".join(f"{name},{grade}\n" for name, grade in grades.items())
    solution = "".join(f"{name},{grade},Private\n" for name, grade in list(grades.items())[:5])
    return {
        "train.zip": {f"train/{name}.jpeg": picture(grade, "train") for name, grade in grades.items()},
        "test.zip": {f"test/{name}.jpeg": picture(grade, "train") for name, grade in list(grades.items())[:5]},
        "trainLabels.csv.zip": {"trainLabels.csv": f"image,level\n{rows}".encode()},
        "retinopathy_solution.csv": f"image,level,Usage\n{solution}".encode(),
    }


def make_clevr(label_of: str) -> Files:
    """Scenes whose number of objects, or depth of the nearest, gives the label that the picture shows."""
    files: dict[str, bytes] = {}
    depths = (7.0, 8.5, 8.7, 9.2, 9.9, 30.0)  # 8.5 is still of the second range
    for word, count in (("train", 6), ("val", 3)):
        scenes = []
        for number in range(count):
            name = f"CLEVR_{word}_{number:06d}.png"
            objects = [{"pixel_coords": [10, 10, depths[number] + extra]} for extra in range(3 + number)]
            scenes.append({"image_filename": name, "objects": objects[::-1]})
            files[f"CLEVR_v1.0/images/{word}/{name}"] = picture(number, "train", kind="PNG")
        files[f"CLEVR_v1.0/scenes/CLEVR_{word}_scenes.json"] = json.dumps({"info": {}, "scenes": scenes}).encode()
    files["CLEVR_v1.0/images/test/CLEVR_test_000000.png"] = picture(0, "test", kind="PNG")
    assert label_of in ("count", "distance")
    return {"CLEVR_v1.0.zip": files}


def make_dsprites(column: int, values: int) -> Files:
    labels = np.arange(values)
    factors = np.zeros((values, 6), np.int64)
    factors[:, column] = labels
    images = np.zeros((values, 64, 64), np.uint8)
    images[:, : 64 // 2] = 1
    out = io.BytesIO()
    np.savez_compressed(out, imgs=images, latents_classes=factors, metadata=np.array("a text"))
    return {"dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz": out.getvalue()}


def matrix(array: np.ndarray) -> bytes:
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    return gzip.compress(struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes())


def make_small_norb(column: int, step: int) -> Files:
    files: Files = {}
    for word, toys, count in (("training", "46789", 6), ("testing", "01235", 3)):
        facts = np.zeros((count, 4), "<i4")
        facts[:, column] = step * np.arange(count)
        pairs = np.stack([[grey(label, 96), np.zeros((96, 96), np.uint8)] for label in range(count)])
        name = f"smallnorb-5x{toys}x9x18x6x2x96x96-{word}"
        files |= {f"{name}-dat.mat.gz": matrix(pairs), f"{name}-info.mat.gz": matrix(facts)}
    return files


def make_kitti() -> Files:
    depths = [7.9, 8.0, 8.1, 25.0, None, 3.0, 30.0, 15.0, None, 60.0]
    images, notes = {}, {}
    for number, depth in enumerate(depths):
        label = 3 if depth is None else 0 if depth <= 8 else 1 if depth <= 20 else 2
        lines = "Pedestrian 0.00 0 -0.20 712 143 810 307 1.89 0.48 1.20 1.84 1.47 1.00 0.01\n"
        if depth is not None:
            lines += f"Car 0.00 0 1.85 387 181 423 203 1.67 1.87 3.69 -16.5 2.39 {depth + 40} 1.57\n"
            lines += f"Van 0.00 0 1.85 387 181 423 203 1.67 1.87 3.69 -16.5 2.39 {depth} 1.57\n"
        images[f"training/image_2/{number:06d}.png"] = picture(label, "train", kind="PNG")
        notes[f"training/label_2/{number:06d}.txt"] = lines.encode()
    images["testing/image_2/000000.png"] = picture(0, "test", kind="PNG")
    return {"data_object_image_2.zip": images, "data_object_label_2.zip": notes}


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(features: dict[str, bytes | int]) -> bytes:
    """A TFRecord with an Example, written by hand after the two formats' descriptions."""
    pairs = b""
    for name, value in features.items():
        feature = field(1, field(1, value)) if isinstance(value, bytes) else field(3, field(1, varint(value)))
        pairs += field(1, field(1, name.encode()) + field(2, feature))
    example = field(1, pairs)
    return struct.pack("<Q", len(example)) + b"sum1" + example + b"sum2"


def make_dmlab() -> Files:
    files = {}
    for word, count in (("train", 4), ("validation", 2), ("test", 3)):
        rows = [{"image": picture(n, "train"), "filename": b"f", "label": n} for n in range(count)]
        files[f"dmlab-{word}.tfrecord-00000-of-00001"] = b"".join(record(row) for row in rows)
    return {"dmlab.tar.gz": files}


VTAB_MAKERS = {
    "caltech101": make_caltech101,
    "sun397": make_sun397,
    "eurosat": lambda: make_folders("EuroSAT.zip", "2750", ("AnnualCrop", "Forest", "SeaLake")),
    "resisc45": lambda: make_folders("NWPU-RESISC45.zip", "NWPU-RESISC45", ("airplane", "airport", "wetland")),
    "patch_camelyon": make_patch_camelyon,
    "retinopathy": make_retinopathy,
    "clevr_count": lambda: make_clevr("count"),
    "clevr_distance": lambda: make_clevr("distance"),
    "dsprites_location": lambda: make_dsprites(4, 32),
    "dsprites_orientation": lambda: make_dsprites(3, 40),
    "norb_azimuth": lambda: make_small_norb(2, 2),
    "norb_elevation": lambda: make_small_norb(1, 1),
    "kitti_distance": make_kitti,
    "dmlab": make_dmlab,
}
VTAB_COUNTS = {  # classes, training images, test images of the made archives
    "caltech101": (2, 60, 5),
    "sun397": (3, 12, 3),
    "eurosat": (3, 12, 3),
    "resisc45": (3, 12, 3),
    "patch_camelyon": (2, 6, 3),
    "retinopathy": (5, 10, 5),
    "clevr_count": (8, 6, 3),
    "clevr_distance": (6, 6, 3),
    "dsprites_location": (16, 29, 3),
    "dsprites_orientation": (16, 36, 4),
    "norb_azimuth": (18, 6, 3),
    "norb_elevation": (9, 6, 3),
    "kitti_distance": (4, 9, 1),
    "dmlab": (6, 6, 3),
}
