"""Hostile and broken archives are refused by name, whatever their format."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import random
import tarfile
import zipfile

import pytest

from rayctsl.data.sources import archives
from rayctsl.data.sources.archives import Member, RefusedError, members, unpack, unpack_gzip
from tests.data.layouts import tar_bytes, zip_bytes

GOOD = {"a.txt": b"alpha", "folder/b.txt": b"beta" * 1000}


def tar(entries, pack=bytes):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return pack(out.getvalue())


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_tar_in_every_compression(pack, tmp_path):
    path = tmp_path / "good.tar"
    path.write_bytes(pack(tar_bytes(GOOD)))
    assert {member.name: member.read() for member in members(path)} == GOOD
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/folder/b.txt").read_bytes() == GOOD["folder/b.txt"]


def test_zip(tmp_path):
    path = tmp_path / "good.zip"
    path.write_bytes(zip_bytes(GOOD))
    assert {member.name: member.read() for member in members(path)} == GOOD


def test_a_zip_with_entries_for_its_folders_has_files_alone(tmp_path):
    path = tmp_path / "folders.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("outer")
        archive.mkdir("outer/inner")
        archive.writestr("outer/inner/c.txt", b"gamma")
    assert [member.name for member in members(path)] == ["outer/inner/c.txt"]
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/outer/inner/c.txt").read_bytes() == b"gamma"


@pytest.mark.parametrize(
    "entry",
    [
        link("evil", "../../outside"),
        link("folder/evil", "../../outside"),
        link("evil", "/etc/passwd"),
        link("folder/evil", "../outside", tarfile.LNKTYPE),
        link("evil", "", tarfile.CHRTYPE),
        link("evil", "", tarfile.FIFOTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.linkname}",
)
def test_links_out_and_devices(entry, tmp_path):
    path = tmp_path / "links.tar"
    path.write_bytes(tar([(entry, b""), (tarfile.TarInfo("a.txt"), b"alpha")]))
    with pytest.raises(ValueError, match=r"links\.tar is refused.*evil"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_that_stay_inside_are_passed_over(tmp_path):
    path = tmp_path / "links.tar"
    path.write_bytes(tar([(link("folder/to_a", "../a.txt"), b""), (tarfile.TarInfo("a.txt"), b"alpha")]))
    assert [member.name for member in members(path)] == ["a.txt"]


def test_zip_link_out(tmp_path):
    path = tmp_path / "links.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("evil")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "../../outside")
    with pytest.raises(ValueError, match=r"links\.zip is refused.*evil"):
        list(members(path))


def test_encrypted_zip(tmp_path):
    path = tmp_path / "locked.zip"
    content = bytearray(zip_bytes({"a.txt": b"alpha"}))
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        list(members(path))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_bomb_in_a_header_costs_no_memory(pack, tmp_path):
    """A pax header is read before its member is seen: the guard must sit below tarfile."""
    info = tarfile.TarInfo("x")
    info.type = tarfile.XHDTYPE
    path = tmp_path / "bomb.tar"
    path.write_bytes(pack(tar([(info, bytes(70 * 2**20))])))
    with pytest.raises(ValueError, match=r"bomb\.tar is refused.*unpack"):
        list(members(path))


def test_gzip_bomb_and_damage(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(70 * 2**20)))
    with pytest.raises(ValueError, match=r"bomb\.gz is refused"):
        unpack_gzip(path, tmp_path / "out")
    path.write_bytes(gzip.compress(GOOD["folder/b.txt"])[:-6])
    with pytest.raises(ValueError, match=r"bomb\.gz is damaged or cut off"):
        unpack_gzip(path, tmp_path / "out")


def test_a_file_too_large_for_memory_is_not_read_into_it(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 3999)
    path = tmp_path / "large.zip"
    path.write_bytes(zip_bytes(GOOD))
    found = members(path)
    assert next(found).read() == b"alpha"
    with pytest.raises(ValueError, match=r"large\.zip is refused: 'folder/b\.txt' has"):
        next(found).read()
    unpack(path, tmp_path / "out")  # on a disk there is room for it
    assert (tmp_path / "out/folder/b.txt").stat().st_size == 4000


def test_a_file_that_is_shorter_than_announced_is_damage(tmp_path):
    content = bytearray(zip_bytes({"a.txt": b"alpha"}))
    content[content.index(b"PK\1\2") + 24] += 1  # its size in the directory at the end
    path = tmp_path / "short.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"short\.zip is damaged or cut off \('a\.txt' ends early\)"):
        unpack(path, tmp_path / "out")
    with pytest.raises(ValueError, match=r"short\.zip is damaged or cut off \('a\.txt' ends early\)"):
        list(map(Member.read, members(path)))


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_every_cut_is_noticed(kind, tmp_path):
    files = {f"{n}.bin": bytes(range(256)) * 8 for n in range(4)}
    whole = {"tar": tar_bytes(files), "tgz": tar_bytes(files, "gz"), "zip": zip_bytes(files)}[kind]
    path = tmp_path / f"cut.{kind}"
    # A plain tar ends with blocks of zeros that nobody misses, and may end between two files.
    end = len(whole) if kind != "tar" else whole.rindex(b"\xff") + 1
    for length in {*range(1, end, max(1, end // 23)), end - 1} - {n * 2560 for n in range(4) if kind == "tar"}:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or cut off"):
            list(map(Member.read, members(path)))


def test_flipped_bytes_never_end_in_another_error(tmp_path):
    chance = random.Random(0)
    for whole in (tar_bytes(GOOD), tar_bytes(GOOD, "gz"), zip_bytes(GOOD)):
        for _ in range(150):
            content = bytearray(whole)
            for _ in range(3):
                content[chance.randrange(len(content))] = chance.randrange(256)
            path = tmp_path / "flipped"
            path.write_bytes(content)
            with contextlib.suppress(RefusedError):
                for member in members(path):
                    member.read()
