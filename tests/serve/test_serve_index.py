"""The index of a storage's initializations: when it looks again, and where it finds them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rayctsl.card import CARD
from serve import index as index_module
from serve.bench.instance import make_initialization
from serve.index import REFRESH_SECONDS, InitializationIndex
from serve.problems import HttpProblem


def test_the_storage_is_looked_at_once_in_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=5.0)
    monkeypatch.setattr(index_module, "time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9))
    index = InitializationIndex(str(tmp_path), tmp_path / "cache")
    assert index.is_stale
    for seed, known in enumerate((1, 1, 3)):
        make_initialization(tmp_path, seed)
        index.refresh()
        assert not index.is_stale
        assert len(index.newest_first) == known
        clock.now += 0.6 * REFRESH_SECONDS


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_an_initialization_may_be_a_storage_of_its_own(scheme: str, tmp_path: Path) -> None:
    made = make_initialization(tmp_path)
    index = InitializationIndex(f"{scheme}{made.storage.root}", tmp_path / "cache")
    index.refresh()
    assert index.broken == {}
    (entry,) = index.newest_first
    assert (entry.id, entry.folder) == (made.id, "")
    with open(index.open(entry, CARD), "rb") as file:
        assert os.pread(file.fileno(), 2**20, 0) == (Path(made.storage.root) / CARD).read_bytes()


def test_damaged_weights_are_refused_and_not_left_open(tmp_path: Path) -> None:
    made = make_initialization(tmp_path / "storage")
    weights = Path(made.storage.root) / "phi.safetensors"
    weights.write_bytes(weights.read_bytes() + b"?")
    index = InitializationIndex(str(tmp_path / "storage"), tmp_path / "cache")
    index.refresh()
    with pytest.raises(HttpProblem, match="damaged"):
        index.open(index.by_id[made.id])
    assert [link for link in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if link == str(weights)] == []
