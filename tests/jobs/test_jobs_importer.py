"""Archives from strangers: one sentence for each way to be wrong, and nothing left behind."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayctsl.data.library import open_dataset
from rayctsl.jobs.importer import Limits, import_archive
from tests.stripes import CLASSES, draw, write_pictures

SMALL = Limits(files=50, unpacked_bytes=2**20)


def picture(side: int = 8, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(out, kind)
    return out.getvalue()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def good() -> dict[str, bytes]:
    return {f"{kind}/{number}.png": picture() for kind in ("cat", "dog") for number in range(3)}


def huge_header() -> bytes:
    """A PNG that says it has 10^9 pixels."""
    head = bytearray(picture())
    head[16:24] = (31623).to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(bytes(head[12:29])).to_bytes(4, "big")
    return bytes(head)


def with_link(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("cat/passwd.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


HOSTILE = {
    "slip": (lambda p: zipped(p, {"../../out.png": picture()}), "outside|refused"),
    "absolute": (lambda p: zipped(p, {"/etc/out.png": picture()}), "outside|refused"),
    "symlink": (with_link, "refused"),
    "bomb": (lambda p: zipped(p, {"cat/a.png": bytes(200 * 2**20)}), "refused|more than"),
    "too much": (
        lambda p: zipped(p, {f"cat/{i}.png": np.random.default_rng(i).bytes(2**18) for i in range(6)}),
        "more than 1 MiB",
    ),
    "many files": (lambda p: zipped(p, {f"cat/{i}.png": b"x" for i in range(60)}), "more than 50 files"),
    "nested": (lambda p: zipped(p, {"inner.zip": zlib.compress(bytes(2**19))}), "no class folders"),
    "pixels": (
        lambda p: zipped(p, {**good(), "cat/big.png": huge_header()}),
        r"1 image cannot be read: .*cat/big\.png",
    ),
    "wrong extension": (lambda p: zipped(p, {**good(), "dog/b.jpg": b"GIF89a no"}), r"cannot be read: .*dog/b\.jpg"),
    "corrupt": (lambda p: zipped(p, {**good(), "dog/cut.png": picture(64)[:90]}), r"cannot be read: .*dog/cut\.png"),
    "case": (
        lambda p: zipped(p, {**good(), "Cat/9.png": picture()}),
        "differ only in capital letters: 'cat' and 'Cat'",
    ),
    "no class": (lambda p: zipped(p, {"readme.txt": b"hello"}), "no class folders"),
    "one class": (lambda p: zipped(p, {f"cat/{i}.png": picture() for i in range(4)}), "only one class"),
    "no archive": (lambda p: p.write_bytes(b"hello" * 100) and p, "damaged or cut off"),
    "cut": (lambda p: p.write_bytes(zipped(p, good()).read_bytes()[:200]) and p, "damaged or cut off"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_sentence_and_nothing_left_behind(name, tmp_path):
    make, sentence = HOSTILE[name]
    (tmp_path / "inbox").mkdir()
    archive = make(tmp_path / "inbox/upload")
    root = tmp_path / "data"
    with pytest.raises(ValueError, match=sentence) as caught:
        import_archive(archive, "mine", str(root), SMALL, size=8)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == ["upload"]
    assert not [path for path in root.glob("*") if not path.name.startswith(".")]
    assert not (tmp_path / "out.png").exists()


def test_a_zipped_folder_becomes_the_dataset_that_import_makes(tmp_path):
    pictures = write_pictures(tmp_path / "holiday", count=20, side=16)
    files = {f"holiday/{p.relative_to(pictures)}": p.read_bytes() for p in sorted(pictures.rglob("*.jpg"))}
    archive = zipped(tmp_path / "a.zip", {**files, "__MACOSX/holiday/x.jpg": b"x", "holiday/rows/.DS_Store": b"x"})
    import_archive(archive, "mine", str(tmp_path / "data"), Limits(), size=16)
    mine = open_dataset("mine", str(tmp_path / "data"))
    assert mine.train.info.class_names == tuple(sorted(CLASSES))
    assert (len(mine.train), len(mine.test)) == (16, 4)


def test_arrays(tmp_path):
    images, labels = draw(12, seed=0)
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    import_archive(tmp_path / "a.npz", "mine", str(tmp_path / "data"), Limits())
    assert open_dataset("mine", str(tmp_path / "data")).num_classes == 4
