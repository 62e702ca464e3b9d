"""Small archives in the publishers' true layouts. A class has one colour, so that a test sees what was read as what."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
from PIL import Image
from scipy.io import savemat

from rayctsl.data.entries import SOURCES_FOLDER


def colour_of(label: int, split: str) -> tuple[int, int, int]:
    """The colour that every made image of a class has: red and green tell the class, blue the split."""
    return 40 + 40 * (label % 5), 40 + 40 * (label // 5 % 5), 250 if split == "train" else 5


def canvas(label: int, split: str, side: int) -> np.ndarray:
    """An image [side, side, 3] of the class's colour with a black bar at its top."""
    image = np.empty((side, side, 3), np.uint8)
    image[:] = colour_of(label, split)
    image[: side // 4] = 0
    return image


def picture(label: int, split: str, side: int = 24, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side + 6, side), colour_of(label, split)).save(out, kind, quality=95)
    return out.getvalue()


def tar_bytes(files: dict[str, bytes], compression: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_bytes(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def matlab(**values: object) -> bytes:
    out = io.BytesIO()
    savemat(out, values)
    return out.getvalue()


def cell(values: list[str]) -> np.ndarray:
    array = np.empty((len(values), 1), object)
    array[:, 0] = values
    return array


def struct(rows: list[dict[str, object]]) -> np.ndarray:
    array = np.empty((1, len(rows)), [(key, object) for key in rows[0]])
    for number, row in enumerate(rows):
        array[0, number] = tuple(row.values())
    return array


# Every maker returns what the files of the archive are (so that tests can damage them), by archive name.


def make_tiny_imagenet() -> dict[str, dict[str, bytes]]:
    base = "tiny-imagenet-200"
    wnids = [f"n{number:08d}" for number in (7, 3, 5, 1)]  # not in order, as in the publisher's file
    ranks = {wnid: rank % 2 for rank, wnid in enumerate(sorted(wnids))}
    files = {f"{base}/wnids.txt": "\n".join(wnids).encode(), f"{base}/words.txt": b""}
    files[f"{base}/words.txt"] = "".join(f"{w}\tname of {w}, synonym\n" for w in sorted(wnids)).encode()
    notes = ""
    for number, wnid in enumerate(wnids):
        for image in range(3):
            name = f"{base}/train/{wnid}/images/{wnid}_{image}.JPEG"
            files[name] = picture(ranks[wnid], "train", 64)
        files[f"{base}/train/{wnid}/{wnid}_boxes.txt"] = b"boxes"
        files[f"{base}/val/images/val_{number}.JPEG"] = picture(ranks[wnid], "test", 64)
        notes += f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n"
    files[f"{base}/val/val_annotations.txt"] = notes.encode()
    files[f"{base}/test/images/test_0.JPEG"] = picture(0, "test", 64)
    return {"tiny-imagenet-200.zip": files}


def make_cub() -> dict[str, dict[str, bytes]]:
    base, files, lists = "CUB_200_2011", {}, {"images": "", "image_class_labels": "", "train_test_split": ""}
    classes = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
    number = 0
    for label, name in enumerate(classes):
        for image in range(4):
            number += 1
            split = "test" if image == 3 else "train"
            files[f"{base}/images/{name}/bird_{number}.jpg"] = picture(label, split)
            lists["images"] += f"{number} {name}/bird_{number}.jpg\n"
            lists["image_class_labels"] += f"{number} {label + 1}\n"
            lists["train_test_split"] += f"{number} {int(split == 'train')}\n"
    texts = {f"{base}/{name}.txt": text.encode() for name, text in lists.items()}
    texts[f"{base}/classes.txt"] = "".join(f"{n} {c}\n" for n, c in enumerate(classes, 1)).encode()
    return {"CUB_200_2011.tgz": {"attributes.txt": b"x", **files, **texts, f"{base}/README": b"x"}}


def make_stanford_dogs() -> dict[str, dict[str, bytes]]:
    breeds = ["n02085620-Chihuahua", "n02085782-Japanese_spaniel"]
    images, lists = {}, {}
    for split, count in (("train", 3), ("test", 2)):
        rows = [(f"{b}/{b.split('-')[0]}_{split}{i}.jpg", n) for n, b in enumerate(breeds) for i in range(count)][::-1]
        for name, label in rows:
            images[f"Images/{name}"] = picture(label, split)
        lists[f"{split}_list.mat"] = matlab(
            file_list=cell([name for name, _ in rows]),
            annotation_list=cell([name.removesuffix(".jpg") for name, _ in rows]),
            labels=np.array([[label + 1] for _, label in rows], np.uint8),
        )
    return {"images.tar": images, "lists.tar": {"file_list.mat": matlab(file_list=cell(["x"])), **lists}}


def make_imagenet(number: int = 6) -> dict[str, dict[str, bytes]]:
    splits = json.loads((SOURCES_FOLDER / "imagenet_splits.json").read_text())["splits"]
    own = list(splits[number - 1]["classes"])
    wnids = sorted([*own, *list(splits[0]["classes"])[:2]])
    label = {wnid: own.index(wnid) if wnid in own else 0 for wnid in wnids}
    train = {
        f"{wnid}.tar": tar_bytes({f"{wnid}_{i}.JPEG": picture(label[wnid], "train", 8) for i in (12, 3)})
        for wnid in wnids
    }
    ids = {wnid: identity for identity, wnid in enumerate(wnids, 1)}
    rows = [
        {"ILSVRC2012_ID": ids[w], "WNID": w, "words": f"the {w}", "gloss": "", "num_children": 0, "children": []}
        for w in wnids
    ]
    rows.append(
        {"ILSVRC2012_ID": 1001, "WNID": "n1", "words": "all", "gloss": "", "num_children": 2, "children": [1, 2]}
    )
    order = wnids[::-1]
    val = {f"ILSVRC2012_val_{n:08d}.JPEG": picture(label[w], "test", 8) for n, w in enumerate(order, 1)}
    data = "ILSVRC2012_devkit_t12/data"
    devkit = {
        f"{data}/meta.mat": matlab(synsets=struct(rows)),
        f"{data}/ILSVRC2012_validation_ground_truth.txt": "".join(f"{ids[w]}\n" for w in order).encode(),
    }
    names = ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz")
    return dict(zip(names, (train, val, devkit), strict=True))


def make_cifar(name: str) -> dict[str, dict[str, bytes]]:
    fine, folder = ("labels", "cifar-10-batches-py") if name == "cifar10" else ("fine_labels", "cifar-100-python")
    batches = [f"data_batch_{n}" for n in range(1, 6)] if name == "cifar10" else ["train"]
    last = "test_batch" if name == "cifar10" else "test"
    files = {}
    for batch in [*batches, last]:
        split = "test" if batch == last else "train"
        planes = np.stack([canvas(label, split, 32).transpose(2, 0, 1).reshape(-1) for label in (0, 1, 2)])
        files[f"{folder}/{batch}"] = pickle.dumps({"data": planes, fine: [0, 1, 2]})
    key, meta = ("label_names", "batches.meta") if name == "cifar10" else ("fine_label_names", "meta")
    files[f"{folder}/{meta}"] = pickle.dumps({key: ["apple", "bear", "cup"]})
    archive = "cifar-10-python.tar.gz" if name == "cifar10" else "cifar-100-python.tar.gz"
    return {archive: files}


def make_fashion_mnist() -> dict[str, bytes]:
    files = {}
    for split, prefix, count in (("train", "train", 6), ("test", "t10k", 3)):
        pixels = np.stack([canvas(n % 3, split, 28)[..., 0] for n in range(count)])
        head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(head + pixels.tobytes())
        labels = bytes(n % 3 for n in range(count))
        files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + labels)
    return files


def make_svhn() -> dict[str, bytes]:
    files = {}
    for split, count in (("train", 6), ("test", 3)):
        labels = [n % 3 for n in range(count)]
        pixels = np.zeros((32, 32, 3, count), np.uint8)
        for row, label in enumerate(labels):
            pixels[..., row] = canvas(label, split, 32)
        files[f"{split}_32x32.mat"] = matlab(X=pixels, y=np.array([[label or 10] for label in labels], np.uint8))
    return files


def make_stl10() -> dict[str, dict[str, bytes]]:
    files = {"stl10_binary/class_names.txt": b"airplane\nbird\ncar\n", "stl10_binary/unlabeled_X.bin": b"x"}
    for split, count in (("train", 6), ("test", 3)):
        labels = [n % 3 for n in range(count)]
        planes = [canvas(label, split, 96).transpose(2, 1, 0) for label in labels]  # column by column
        files[f"stl10_binary/{split}_X.bin"] = np.stack(planes).tobytes()
        files[f"stl10_binary/{split}_y.bin"] = bytes(label + 1 for label in labels)
    return {"stl10_binary.tar.gz": files}


def make_stanford_cars() -> dict[str, dict[str, bytes] | bytes]:
    def notes(count: int) -> np.ndarray:
        return struct([{"bbox_x1": 1, "class": n % 3 + 1, "fname": f"{n + 1:05d}.jpg"} for n in range(count)])

    return {
        "cars_train.tgz": {f"cars_train/{n + 1:05d}.jpg": picture(n % 3, "train") for n in range(6)},
        "cars_test.tgz": {f"cars_test/{n + 1:05d}.jpg": picture(n % 3, "test") for n in range(3)},
        "car_devkit.tgz": {
            "devkit/cars_meta.mat": matlab(class_names=cell(["AM General Hummer", "Acura RL", "Audi TT"]).T),
            "devkit/cars_train_annos.mat": matlab(annotations=notes(6)),
        },
        "cars_test_annos_withlabels.mat": matlab(annotations=notes(3)),
    }


def make_aircraft() -> dict[str, dict[str, bytes]]:
    base, variants = "fgvc-aircraft-2013b/data", ["707-320", "727-200", "737-200"]
    files = {f"{base}/variants.txt": "\n".join(variants).encode()}
    for split, file, count in (("train", "trainval", 6), ("test", "test", 3)):
        lines = ""
        for n in range(count):
            files[f"{base}/images/{split}{n}.jpg"] = picture(n % 3, split)
            lines += f"{split}{n} {variants[n % 3]}\n"
        files[f"{base}/images_variant_{file}.txt"] = lines.encode()
    return {"fgvc-aircraft-2013b.tar.gz": files}


def make_vgg_flowers() -> dict[str, dict[str, bytes] | bytes]:
    splits = ["train"] * 6 + ["test"] * 3
    images = {f"jpg/image_{n + 1:05d}.jpg": picture(n % 3, split) for n, split in enumerate(splits)}
    return {
        "102flowers.tgz": images,
        "imagelabels.mat": matlab(labels=np.array([[n % 3 + 1 for n in range(9)]], np.uint8)),
        "setid.mat": matlab(trnid=np.array([[1, 2, 3]]), valid=np.array([[4, 5, 6]]), tstid=np.array([[7, 8, 9]])),
    }


def make_vgg_pets() -> dict[str, dict[str, bytes]]:
    images, notes = {}, {}
    for split, file, count in (("train", "trainval", 6), ("test", "test", 3)):
        lines = ""
        for n in range(count):
            breed = ("Abyssinian", "american_bulldog", "beagle")[n % 3]
            images[f"images/{breed}_{split}{n}.jpg"] = picture(n % 3, split, kind="PNG")  # some really are not JPEG
            lines += f"{breed}_{split}{n} {n % 3 + 1} 1 1\n"
        notes[f"annotations/{file}.txt"] = lines.encode()
    return {"images.tar.gz": images, "annotations.tar.gz": notes}


def make_food101() -> dict[str, dict[str, bytes]]:
    foods, files = ["apple_pie", "bibimbap", "waffles"], {}
    for split, count in (("train", 2), ("test", 1)):
        lists = {food: [f"{food}/{split}{n}" for n in range(count)] for food in foods}
        files[f"food-101/meta/{split}.json"] = json.dumps(lists).encode()
        for label, food in enumerate(foods):
            for name in lists[food]:
                files[f"food-101/images/{name}.jpg"] = picture(label, split)
    return {"food-101.tar.gz": files}


def make_dtd() -> dict[str, dict[str, bytes]]:
    kinds, files = ["banded", "dotted", "woven"], {}
    for part in ("train", "val", "test"):
        names = [f"{kind}/{kind}_{part}.jpg" for kind in kinds]
        files[f"dtd/labels/{part}1.txt"] = "\n".join(names).encode()
        for label, name in enumerate(names):
            files[f"dtd/images/{name}"] = picture(label, "test" if part == "test" else "train")
    return {"dtd-r1.0.1.tar.gz": files}


MAKERS = {
    "tiny_imagenet_1": make_tiny_imagenet,
    "tiny_imagenet_2": make_tiny_imagenet,
    "cub": make_cub,
    "stanford_dogs": make_stanford_dogs,
    "imagenet_6": make_imagenet,
    "cifar10": lambda: make_cifar("cifar10"),
    "cifar100": lambda: make_cifar("cifar100"),
    "fashion_mnist": make_fashion_mnist,
    "svhn": make_svhn,
    "stl10": make_stl10,
    "stanford_cars": make_stanford_cars,
    "aircraft": make_aircraft,
    "vgg_flowers": make_vgg_flowers,
    "vgg_pets": make_vgg_pets,
    "food101": make_food101,
    "dtd": make_dtd,
}
COUNTS = {  # classes, training images, test images of the made archives; otherwise 3, 6, 3
    "tiny_imagenet_1": (2, 6, 2),
    "tiny_imagenet_2": (2, 6, 2),
    "cub": (3, 9, 3),
    "stanford_dogs": (2, 6, 4),
    "imagenet_6": (98, 196, 98),
    "cifar10": (3, 15, 3),
    "cifar100": (3, 3, 3),
    "fashion_mnist": (10, 6, 3),
    "svhn": (10, 6, 3),
    "vgg_flowers": (102, 6, 3),
}
