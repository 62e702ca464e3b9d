"""What is trained in the measurements: the paper's eight image sizes, or the demo's small model, on made-up images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rayctsl.config import Config, build_config
from rayctsl.contract import Json
from rayctsl.data.store import SplitInfo, write_split

NUM_IMAGES = 512


@dataclass(frozen=True)
class Workload:
    """Example: Workload("resnet20", 16, 128, (64, 64, 32), (100, 100, 100))"""

    model: str
    width: int
    batch_size: int
    sizes: tuple[int, ...]  # pixels, one dataset each
    num_classes: tuple[int, ...]
    alpha: float = 0.01

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"made-{number}-{size}" for number, size in enumerate(self.sizes))

    def make_data(self, root: Path) -> None:
        """Write the datasets into a data root; 28 pixels are grey, as in Fashion-MNIST."""
        random = np.random.default_rng(0)
        for name, size, classes in zip(self.names, self.sizes, self.num_classes, strict=True):
            shape = (size, size, 1 if size == 28 else 3)
            for split in ("train", "test"):
                images = random.integers(0, 256, (NUM_IMAGES, *shape), dtype=np.uint8)
                labels = np.arange(NUM_IMAGES) % classes
                info = SplitInfo(name, split, shape, tuple(str(label) for label in range(classes)))
                write_split(root / name / f"{split}.arrow", images, labels, info)

    def config(self, root: Path, **keys: Json) -> Config:
        """A run over all datasets that never ends by itself; keyword arguments are more config keys."""
        raw: dict[str, Json] = {
            "inner_steps": 1000,
            "trajectories": 1000,
            "model": {"name": self.model, "width": self.width},
            "data": {"tasks": list(self.names), "root": str(root), "batch_size": self.batch_size},
            "inner": {"alpha": self.alpha},
        }
        return build_config({**raw, **keys})


WORKLOADS = {
    "resnet20": Workload("resnet20", 16, 128, (64, 64, 32, 84, 84, 84, 28, 32), (100, 100, 100, 120, 100, 200, 10, 10)),
    "demo": Workload("resnet8", 8, 32, (28, 28, 32, 32, 32, 32, 32, 32), (37, 40, 50, 100, 22, 22, 20, 24), alpha=0.05),
}


def scaled(workload: Workload, sizes: str | None, batch_size: int | None) -> Workload:
    """The workload with other image sizes (`32,64,…`) or another batch size."""
    if sizes is None:
        return Workload(**{**workload.__dict__, "batch_size": batch_size or workload.batch_size})
    pixels = tuple(int(size) for size in sizes.split(","))
    classes = tuple(workload.num_classes[place % len(workload.num_classes)] for place in range(len(pixels)))
    return Workload(workload.model, workload.width, batch_size or workload.batch_size, pixels, classes, workload.alpha)
