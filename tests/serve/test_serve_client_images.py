"""The client with own images, on a service whose jobs really run: upload, compare, predict, publish, delete."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from rayctsl.client import Client, ServiceError
from rayctsl.client.sending import batches, find_images, packed
from rayctsl.commands.client import main
from serve.bench.instance import Instance
from tests.stripes import CLASSES, write_pictures


def test_a_folder_is_packed_the_same_every_time_and_without_hidden_files(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "holiday", count=8)
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.jpg").write_bytes(b"x")
    with packed(folder) as first, packed(folder) as second:
        assert first.read_bytes() == second.read_bytes()
        with tarfile.open(first) as archive:
            assert archive.getnames() == sorted(archive.getnames()), "whatever order a disk has them in"
        assert b".DS_Store" not in first.read_bytes()
        assert b".git" not in first.read_bytes()
    with pytest.raises(ValueError, match="there is no file or folder"), packed(tmp_path / "nothing"):
        pass


def test_images_are_sent_in_groups_that_a_request_takes(tmp_path: Path) -> None:
    files = []
    for number in range(205):
        (tmp_path / f"{number:03}.png").write_bytes(b"x")
        files.append(tmp_path / f"{number:03}.png")
    assert [len(group) for group in batches(files)] == [100, 100, 5]
    large = [tmp_path / name for name in "abcde"]
    for path in large:
        with path.open("wb") as file:
            file.truncate(10 * 2**20)
    assert [len(group) for group in batches(large)] == [2, 2, 1]


def test_hidden_files_are_not_sent_and_a_folder_without_images_is_told(tmp_path: Path) -> None:
    (tmp_path / "._a.jpg").write_bytes(b"x")  # as macOS leaves them beside a picture
    (tmp_path / "odd.jpg").mkdir()
    with pytest.raises(ValueError, match="has no images"):
        list(find_images([str(tmp_path)]))
    for name in ("a.jpg", "DSC1.JPG", "read.me"):
        (tmp_path / name).write_bytes(b"x")
    assert list(find_images([str(tmp_path)])) == [tmp_path / "DSC1.JPG", tmp_path / "a.jpg"]
    assert list(find_images([str(tmp_path / "read.me")])) == [tmp_path / "read.me"], "the service says what it is not"


@pytest.mark.ray
def test_from_a_folder_to_predictions_and_away(
    service: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_pictures(tmp_path / "holiday", count=40, side=12)

    def run(*words: str) -> list[str]:
        assert main(["--url", service.url, *words]) == 0
        return capsys.readouterr().out.splitlines()

    assert run("upload", "holiday", str(folder), "--size", "12") == [
        "holiday: 32 training and 8 test images of 4 classes"
    ]
    with Client(service.url) as client:
        ids = [card["id"] for card in client.initializations()][:2]
        table = run("compare", "holiday", "--init", ",".join(ids), "--seeds", "2", "--steps", "4")
        assert table[0].split() == ["start", "accuracy", "behind", "the", "best", "seeds"]
        assert len(table) == 5  # two initializations, random weights, the comparison's id
        assert all("±" in line for line in table[1:4])
        comparison = table[-1].removeprefix("comparison: ")
        lines = run("predict", "best@holiday", str(folder), "--top", "1")
        assert len(lines) == 40
        assert all(line.split(": ")[1].split()[0] in CLASSES for line in lines)
        bad = tmp_path / "bad.png"
        bad.write_bytes(b"no picture")
        assert main(["--url", service.url, "predict", "latest@holiday", str(bad)]) == 1
        assert "not a readable" in capsys.readouterr().err
        job = client.job("best@holiday")["id"]
        assert run("publish", job, "holiday-v1") == ["rayctsl/holiday-v1"]
        assert run("models")[0].startswith("holiday-v1")
        assert "it has succeeded" in run("log", job)[-1]
        assert run("delete", comparison, "holiday-v1", "--dataset", "holiday")[-1] == "holiday deleted"
        with pytest.raises(ServiceError):
            client.job(job)
        assert client.delete_jobs("failed", days=1000) == []
    assert main(["--url", service.url, "delete"]) == 2
