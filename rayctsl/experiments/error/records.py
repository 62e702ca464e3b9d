"""What the error experiment varies, and the documents that it leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from rayctsl.experiments.cells import Cell
from rayctsl.experiments.error.measure import ErrorArguments, Network

Axis = Literal["alpha", "beta", "k"]
AXES: tuple[Axis, ...] = ("alpha", "beta", "k")


class ErrorRow(TypedDict):
    """The error of one draw."""

    activation: str
    alpha: float
    beta: float
    k: int
    draw: int
    one_direction: bool
    error: float


class OnAxis(TypedDict, total=False):
    """Where along its axis a point lies."""

    alpha: float
    beta: float
    k: float


class ErrorPoint(OnAxis):
    """The mean over draws of log10 of the error, with its 95 % interval."""

    series: str
    axis: Axis
    mean: float
    interval: float
    draws: int


class Bound(TypedDict):
    """|epsilon_k| = a beta alpha k^2 + b beta^2 k; `a` stands for h."""

    a: float
    b: float
    largest_log10_misfit: float


class Summary(TypedDict):
    log10_error: list[ErrorPoint]
    exponents: dict[str, tuple[float, float]]  # by series and axis: mean and 95 % interval
    bound: dict[str, Bound]


@dataclass(frozen=True)
class ErrorSweep:
    """Values of alpha, beta and k, each varied alone around (alpha, beta, length)."""

    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    lengths: tuple[int, ...]
    alpha: float
    beta: float
    length: int
    activations: tuple[str, ...]
    draws: int

    def __post_init__(self) -> None:
        if min((*self.lengths, self.length)) < 2:
            raise ValueError("lengths start at 2: the first step comes before the first shift")
        if not all(0 < value < math.inf for value in (*self.alphas, *self.betas, self.alpha, self.beta)):
            raise ValueError("alphas and betas must be positive numbers")
        if self.draws < 1:
            raise ValueError(f"--draws must be at least 1 (got {self.draws})")

    def cells(self, network: Network) -> list[Cell[ErrorArguments]]:
        """One cell for every draw of every point of the sweep; the middle has all lengths, the others one."""
        points: list[tuple[str, float, float, bool, tuple[int, ...]]] = []
        for activation in self.activations:
            full = tuple(sorted({*self.lengths, self.length}))
            points += [(activation, self.alpha, self.beta, one_direction, full) for one_direction in (False, True)]
            points += [(activation, a, self.beta, False, (self.length,)) for a in self.alphas if a != self.alpha]
            points += [(activation, self.alpha, b, False, (self.length,)) for b in self.betas if b != self.beta]
        return [
            Cell(
                f"{activation}-alpha{alpha:g}-beta{beta:g}{'-one-direction' if one else ''}-draw{draw}",
                ErrorArguments(**network, activation=activation, alpha=alpha, beta=beta, lengths=list(lengths),
                               one_direction=one, draw=draw),
            )
            for draw in range(self.draws)
            for activation, alpha, beta, one, lengths in points
        ]  # fmt: skip

    def series(
        self, rows: Sequence[ErrorRow], axis: Axis, activation: str, one_direction: bool = False
    ) -> list[list[ErrorRow]]:
        """The draws' rows along one axis, the other two held at the middle."""
        middle: dict[Axis, float] = {"alpha": self.alpha, "beta": self.beta, "k": self.length}
        del middle[axis]
        kind = [row for row in rows if (row["activation"], row["one_direction"]) == (activation, one_direction)]
        chosen = [row for row in kind if all(row[key] == value for key, value in middle.items())]
        values = sorted({row[axis] for row in chosen})
        return [[row for row in chosen if row[axis] == value] for value in values]
