"""Made datasets, and the tiny suite that ends in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rayctsl.data.importing import import_dataset

TINY = yaml.safe_load((Path(__file__).parent / "tiny.yaml").read_text())


def write_pack(folder: Path, name: str, count: int = 30, classes: int = 3, size: int = 8) -> Path:
    """An .npz of random images whose brightness tells the class."""
    random = np.random.default_rng(list(name.encode()))
    arrays: dict[str, np.ndarray] = {}
    for split in ("train", "test"):
        labels = np.arange(count) % classes
        noise = random.integers(0, 80, (count, size, size, 3))
        arrays[f"x_{split}"] = (noise + 60 * labels[:, None, None, None]).astype(np.uint8)
        arrays[f"y_{split}"] = labels
    np.savez(folder / f"{name}.npz", **arrays)
    return folder / f"{name}.npz"


@pytest.fixture(scope="session")
def make_pack() -> Callable[..., Path]:
    return write_pack


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the sources and targets of the tiny suite."""
    folder, root = tmp_path_factory.mktemp("packs"), tmp_path_factory.mktemp("suite-data")
    for name in (*TINY["base"]["data"]["tasks"], *TINY["targets"]):
        import_dataset(name, write_pack(folder, name), str(root), workers=1, published=True)
    return root


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., str]:
    """Writes the tiny suite, changed at will, and returns its path: tiny(seeds=3)."""

    def write(**changes: Any) -> str:
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}, sort_keys=False))
        return str(path)

    return write


def _with_room_for(cpus: int, cluster: str) -> Iterator[str]:
    """The session's cluster with only so many CPUs free: every one would start a process that imports torch."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    taken = placement_group([{"CPU": ray.cluster_resources()["CPU"] - cpus}])
    ray.get(taken.ready())
    yield cluster
    remove_placement_group(taken)


@pytest.fixture
def two_cpus(ray_cluster: str) -> Iterator[str]:
    """The address of a cluster that runs two cells at once."""
    yield from _with_room_for(2, ray_cluster)


@pytest.fixture
def one_cpu(ray_cluster: str) -> Iterator[str]:
    """The address of a cluster that runs cells one by one."""
    yield from _with_room_for(1, ray_cluster)
