"""Archives from strangers: one sentence for each way to be wrong, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rayctsl.data.library import open_dataset
from rayctsl.jobs.importer import Limits, _without_paths, import_archive, unpacked
from serve.bench.hostile import hostile, zipped
from tests.stripes import CLASSES, draw, write_pictures

SMALL = Limits(files=50, unpacked_bytes=2**20)


HOSTILE = hostile(files=60, most_files=SMALL.files, unpacked=SMALL.unpacked_bytes)


@pytest.mark.parametrize("name", HOSTILE)
def test_one_sentence_and_nothing_left_behind(name, tmp_path):
    (tmp_path / "inbox").mkdir()
    archive = tmp_path / "inbox/upload"
    archive.write_bytes(HOSTILE[name].make())
    root = tmp_path / "data"
    with pytest.raises(ValueError, match=HOSTILE[name].sentence) as caught:
        import_archive(archive, "mine", str(root), SMALL, size=8)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == ["upload"]
    assert not [path for path in root.glob("*") if not path.name.startswith(".")]
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize("above", ["", "2024/may/"])
def test_a_zipped_folder_becomes_the_dataset_that_import_makes(tmp_path, above):
    pictures = write_pictures(tmp_path / "holiday", count=20, side=16)
    files = {f"{above}holiday/{p.relative_to(pictures)}": p.read_bytes() for p in sorted(pictures.rglob("*.jpg"))}
    archive = tmp_path / "a.zip"
    archive.write_bytes(
        zipped({**files, "__MACOSX/holiday/x.jpg": b"x", "holiday/rows/.DS_Store": b"x", "holiday/rows/._1.jpg": b"x"})
    )
    import_archive(archive, "mine", str(tmp_path / "data"), Limits(files=len(files)), size=16)
    mine = open_dataset("mine", str(tmp_path / "data"))
    assert mine.train.info.class_names == tuple(sorted(CLASSES))
    assert (len(mine.train), len(mine.test)) == (16, 4)


def test_a_sentence_names_what_is_in_the_archive_and_no_folder_of_ours(tmp_path):
    archive = tmp_path / "inbox" / "mine.archive"
    folder = unpacked(archive)
    for raised, said in {
        f"{folder}/images has no class folders": "the archive has no class folders",
        f"1 image cannot be read: {folder}/images/cat/a.png (cut)": "1 image cannot be read: cat/a.png (cut)",
        f"{folder}/arrays.npz lacks y_test": "the archive lacks y_test",
        f"{archive} is refused": "the archive is refused",
        f"no space left for {archive.parent}/mine.unpacking": "no space left for mine.unpacking",
    }.items():
        assert _without_paths(ValueError(raised), archive) == said
    assert "needs more memory than an import may use" in _without_paths(MemoryError(), archive)


def test_arrays(tmp_path):
    images, labels = draw(12, seed=0)
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    import_archive(tmp_path / "a.npz", "mine", str(tmp_path / "data"), Limits())
    assert open_dataset("mine", str(tmp_path / "data")).num_classes == 4


def test_arrays_that_unpack_to_too_much_are_not_unpacked(tmp_path):
    images = np.zeros((2**11, 32, 32), np.uint8)  # 2 MiB, which pack to nothing
    np.savez_compressed(tmp_path / "a.npz", x_train=images, y_train=np.arange(2**11) % 2, x_test=images, y_test=images)
    with pytest.raises(ValueError, match="the archive unpacks to more than 1 MiB"):
        import_archive(tmp_path / "a.npz", "mine", str(tmp_path / "data"), SMALL)


def test_an_import_that_was_cut_off_can_be_done_again(tmp_path):
    """What it has written by then is replaced."""
    images, labels = draw(12, seed=0)
    for count in (8, 12):
        np.savez(
            tmp_path / "a.npz", x_train=images[:count], y_train=labels[:count], x_test=images[:4], y_test=labels[:4]
        )
        import_archive(tmp_path / "a.npz", "mine", str(tmp_path / "data"), Limits())
    assert len(open_dataset("mine", str(tmp_path / "data")).train) == 12


def test_the_seed_decides_which_images_are_kept_for_testing(tmp_path):
    pictures = write_pictures(tmp_path / "holiday", count=20, side=8)
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({str(p.relative_to(pictures)): p.read_bytes() for p in sorted(pictures.rglob("*.jpg"))}))
    splits = []
    for number, seed in enumerate((1, 1, 2)):
        import_archive(archive, f"mine-{number}", str(tmp_path / "data"), Limits(), size=8, seed=seed)
        splits.append(open_dataset(f"mine-{number}", str(tmp_path / "data")).test.info.checksum)
    assert splits[0] == splits[1] != splits[2]


def test_an_import_gives_away_what_it_does_not_need():
    code = """
import resource, sys
from rayctsl.jobs import importer
def look(archive, name, root, limits, size, seed):
    print(limits)
    print([resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("FSIZE", "AS", "CPU", "CORE")])
importer.import_archive = look
limits = ["--files", "9", "--unpacked-bytes", str(2**30), "--memory-bytes", str(2**36), "--seconds", "77"]
sys.exit(importer.main(["archive", "--name", "mine", "--root", "data", *limits]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    limits = Limits(files=9, unpacked_bytes=2**30, memory_bytes=2**36, seconds=77)
    limited = [(2**30, 2**30), (2**36, 2**36), (77, 77), (0, 0)]
    assert done.stdout.splitlines() == [str(limits), str(limited), '{"done": true}']
