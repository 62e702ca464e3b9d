"""`publisher`: a dataset's files as its publisher would have them; `server`: where to download them from."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from pathlib import Path

import pytest

from rayctsl.data.catalog import CATALOG
from rayctsl.data.entries import Entry, RemoteFile
from tests.data.file_server import Server
from tests.data.layouts import COUNTS, MAKERS, tar_bytes, zip_bytes
from tests.data.vtab_layouts import VTAB_COUNTS, VTAB_MAKERS


class Publisher:
    """Writes one dataset's files as its publisher would, whole or damaged, and says what the catalog would say."""

    def __init__(self, name: str, downloads: Path):
        self.name, self.downloads = name, downloads
        self.files = (MAKERS | VTAB_MAKERS)[name]()

    @property
    def folder(self) -> Path:
        return self.downloads / CATALOG[self.name].origin

    def encoded(self) -> dict[str, bytes]:
        result = {}
        for name, files in self.files.items():
            if isinstance(files, bytes):
                result[name] = files
            elif name.endswith(".zip"):
                result[name] = zip_bytes(files)
            else:
                result[name] = tar_bytes(files, "gz" if name.endswith("gz") else "")
        return result

    def write(self, change=lambda name, content: content) -> Entry:
        """Write the files, each passed through `change` after its sum was taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        known = {file.name: file for file in CATALOG[self.name].files}
        files = []
        for name, content in self.encoded().items():
            files.append(dataclasses.replace(known[name], md5=hashlib.md5(content).hexdigest()))
            (self.folder / name).write_bytes(change(name, content))
        return self.entry(tuple(sorted(files, key=lambda file: list(known).index(file.name))))

    def entry(self, files: tuple[RemoteFile, ...]) -> Entry:
        num_classes, num_train, num_test = (COUNTS | VTAB_COUNTS).get(self.name, (3, 6, 3))
        return dataclasses.replace(
            CATALOG[self.name], files=files, num_classes=num_classes, num_train=num_train, num_test=num_test
        )


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """publisher(name): its files, with torchvision's own sums set to those of the made files."""

    def build(name: str) -> Publisher:
        made = Publisher(name, tmp_path / "downloads")
        set_torchvision_sums(made, monkeypatch)
        return made

    return build


def set_torchvision_sums(made: Publisher, monkeypatch) -> None:
    if made.name not in ("cifar10", "cifar100", "stl10", "svhn", "vgg_flowers"):
        return
    from rayctsl.torchvision_import import import_torchvision

    datasets = import_torchvision().datasets
    sums = {}
    for name, files in made.files.items():
        inner = {name: files} if isinstance(files, bytes) else files
        sums |= {Path(n).name: hashlib.md5(content).hexdigest() for n, content in inner.items()}
    if made.name in ("cifar10", "cifar100", "stl10"):
        owner = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100, "stl10": datasets.STL10}[made.name]
        for key in ("train_list", "test_list"):
            monkeypatch.setattr(owner, key, [[name, sums[name]] for name, _ in getattr(owner, key)])
        if made.name != "stl10":
            monkeypatch.setattr(owner, "meta", {**owner.meta, "md5": sums[owner.meta["filename"]]})
    elif made.name == "svhn":
        rows = {s: [u, n, sums.get(n, m)] for s, (u, n, m) in datasets.SVHN.split_list.items()}
        monkeypatch.setattr(datasets.SVHN, "split_list", rows)
    else:
        rows = {key: (name, sums.get(name, md5)) for key, (name, md5) in datasets.Flowers102._file_dict.items()}
        monkeypatch.setattr(datasets.Flowers102, "_file_dict", rows)


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()
