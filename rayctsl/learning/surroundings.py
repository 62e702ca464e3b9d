"""What must be the same wherever a run computes: Python, torch, rayctsl's own code, and the images."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version as installed_version
from pathlib import Path

from rayctsl.config import Config
from rayctsl.data.library import Dataset, open_dataset
from rayctsl.data.roots import root_to_keep

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Surroundings:
    """What a process computes with. Example: Surroundings("3.11", "2.13.0", "0.1.0 (code 3f2a91c0)")"""

    python: str
    torch: str
    rayctsl: str

    def differences(self, other: Surroundings) -> list[str]:
        """What `other` has in place of this, in words."""
        here, there = asdict(self), asdict(other)
        return [f"{name} {there[name]}, not {here[name]}" for name in here if there[name] != here[name]]


@cache
def surroundings() -> Surroundings:
    """This process's."""
    major, minor, _ = platform.python_version_tuple()
    # A build for GPUs (2.13.0+cu130) and one without are the same torch: a driver may have no GPU.
    torch = installed_version("torch").partition("+")[0]
    return Surroundings(f"{major}.{minor}", torch, f"{installed_version('rayctsl')} (code {code_checksum()})")


def code_checksum(package: Path = PACKAGE) -> str:
    """Of rayctsl's Python files: two checkouts of one version may differ."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def settled(config: Config) -> Config:
    """The config with its data named so that every node finds the same: the absolute root, and what lies there."""
    checksums = {name: open_dataset(name, config.data.root).checksum for name in config.data.tasks}
    changes = {"root": root_to_keep(config.data.root), "checksums": checksums}
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def open_data(name: str, config: Config) -> Dataset:
    """A dataset of a config; refuses other images than those that its run was begun with."""
    return open_checked(name, config.data.root, config.data.checksums)


def open_checked(name: str, root: str | None, checksums: Mapping[str, str]) -> Dataset:
    dataset = open_dataset(name, root)
    if name in checksums and dataset.checksum != checksums[name]:
        raise ValueError(f"the images of {name!r} in {dataset.train.path.parent} are not those that the run began with")
    return dataset
