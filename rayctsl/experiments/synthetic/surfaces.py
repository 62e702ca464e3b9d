"""The synthetic tasks: eight 2-D loss surfaces, one template shifted and rotated (paper, section 4.1).

With u, v the point minus the task's centre, rotated by the task's angle and divided by 3,
loss = c0 (u^2 + v - c1)^2 + c2 (u + v^2 - c3)^2.
`SurfaceTask` is one of them as an ordinary task; `Surfaces` is all of them at once, with slopes in closed form.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SCALE = 3.0  # the template is stretched by this factor


@dataclass(frozen=True)
class Environment:
    """angles [T] (radians), targets [T, 2] and coeff [4] of a set of surfaces."""

    angles: np.ndarray
    targets: np.ndarray
    coeff: np.ndarray

    @classmethod
    def load(cls, path: str | Path) -> Environment:
        """Read an .npz file; ValueError when it is missing or not what it should be."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as data:
                angles, targets, coeff = (np.asarray(data[key], float) for key in ("angles", "targets", "coeff"))
        except FileNotFoundError:
            raise ValueError(f"there is no environment file {path}") from None
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not an .npz file with angles, targets and coeff: {error}") from None
        angles, coeff = angles.reshape(-1), coeff.reshape(-1)
        if not len(angles) or targets.shape != (len(angles), 2) or coeff.shape != (4,):
            raise ValueError(f"{path}: expected angles [T], targets [T, 2] and coeff [4]")
        if not all(np.isfinite(values).all() for values in (angles, targets, coeff)):
            raise ValueError(f"{path}: angles, targets and coeff must be finite numbers")
        return cls(angles, targets, coeff)

    @classmethod
    def draw(cls, seed: int, num_tasks: int = 8) -> Environment:
        """Random angles; centres on the circle of radius 7 around (5, 5), as in the paper."""
        turns = 2 * np.pi * np.arange(num_tasks) / num_tasks
        targets = np.stack([5 + 7 * np.sin(turns), 5 + 7 * np.cos(turns)], axis=1)
        angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, num_tasks)
        return cls(angles, targets, np.array([1 / 3, 11.0, 1 / 3, 7.0]))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"surface-{t + 1}" for t in range(len(self.angles)))

    def only(self, names: Sequence[str]) -> Environment:
        """The named surfaces alone."""
        chosen = [self.names.index(name) for name in names]
        return Environment(self.angles[chosen], self.targets[chosen], self.coeff)

    def tasks(self, start: np.ndarray) -> dict[str, SurfaceTask]:
        """One task per surface, all starting at `start` [2] or at many starts [S, 2] at once."""
        return {name: SurfaceTask(self, t, start) for t, name in enumerate(self.names)}


class PointModule(nn.Module):
    """Points in the plane as a module's only parameter, in double precision."""

    def __init__(self, start: np.ndarray):
        super().__init__()
        self.at = nn.Parameter(torch.tensor(start, dtype=torch.float64))


class SurfaceTask:
    """Descend one surface. Many starts are many independent runs: the loss is their sum, so gradients do not mix."""

    def __init__(self, environment: Environment, number: int, start: np.ndarray):
        self.environment, self.number, self.start = environment, number, np.asarray(start, float)
        self.name = environment.names[number]

    def build_module(self) -> nn.Module:
        return PointModule(self.start)

    def head_name(self, module: nn.Module) -> str | None:
        return None

    def loss(self, module: nn.Module, index: int, *, held_out: bool = False) -> Tensor:
        point = module.at
        assert isinstance(point, Tensor)
        return self.height(point).sum()

    def height(self, point: Tensor) -> Tensor:
        """The surface at points [..., 2]."""
        c0, c1, c2, c3 = self.environment.coeff
        angle = self.environment.angles[self.number]
        offset = point - torch.from_numpy(self.environment.targets[self.number])
        x, y = offset[..., 0], offset[..., 1]
        u = (np.cos(angle) * x - np.sin(angle) * y) / SCALE
        v = (np.sin(angle) * x + np.cos(angle) * y) / SCALE
        return c0 * (u * u + v - c1).square() + c2 * (u + v * v - c3).square()


class Surfaces:
    """All T surfaces at S points each, as few array operations: one environment, or one for every point."""

    def __init__(self, environments: Sequence[Environment]):
        angles = np.stack([environment.angles for environment in environments], axis=1)  # [T, 1 or S]
        self.cos, self.sin = np.cos(angles), np.sin(angles)
        self.centres = np.stack([environment.targets for environment in environments], axis=2)  # [T, 2, 1 or S]
        self.c0, self.c1, self.c2, self.c3 = np.stack([environment.coeff for environment in environments], axis=1)

    def heights(self, points: np.ndarray, slopes: np.ndarray | None = None) -> np.ndarray:
        """Heights [T, S] at points [T, 2, S]; writes the gradients into `slopes` [T, 2, S] when given."""
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run is the caller's to notice
            offsets = points - self.centres
            x, y = offsets[:, 0], offsets[:, 1]
            u, v = (self.cos * x - self.sin * y) / SCALE, (self.sin * x + self.cos * y) / SCALE
            p, q = u * u + v - self.c1, u + v * v - self.c3
            if slopes is not None:
                # The chain rule through p and q, and the transposed rotation back to x and y.
                by_u, by_v = self.c0 * 4 * p * u + self.c2 * 2 * q, self.c0 * 2 * p + self.c2 * 4 * q * v
                slopes[:, 0] = (self.cos * by_u + self.sin * by_v) / SCALE
                slopes[:, 1] = (self.cos * by_v - self.sin * by_u) / SCALE
            return self.c0 * p * p + self.c2 * q * q
