"""The documents of an image experiment: what a cell of each stage is given, what it leaves, and the rows of its tables.

All of them are JSON in the experiment's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from rayctsl.contract import Json, JsonObject

Candidate = dict[str, bool | int | float | str | None]  # config keys that a search sets


class TuneArguments(TypedDict):
    config: JsonObject  # of the trial's run
    start: NotRequired[JsonObject]  # of the run before it, whose phi it begins with
    validation: JsonObject
    seed: int
    gpus: float


class TuneResult(TypedDict, total=False):
    accuracy: float | None  # on held-out images of the sources; None: it diverged
    diverged: str
    spent: dict[str, int]


class TrainArguments(TypedDict):
    config: JsonObject
    start: NotRequired[JsonObject]
    checkpoints: list[int]  # inner steps of each task at which phi is kept
    gpus: float
    run: str  # the run's folder, inside the experiment's


class KeptPhi(TypedDict):
    """A phi of a training, and what it had cost."""

    step: int
    path: str
    sha256: str
    spent: dict[str, int]


class TrainResult(TypedDict):
    points: list[KeptPhi]
    losses: list[list[float]]  # inner steps over all tasks, and the loss averaged over tasks and a trajectory
    diverged: str | None


class TestArguments(TypedDict):
    initialization: str
    sha256: str
    target: str
    seed: int
    finetune: JsonObject
    root: str
    gpus: float


class TestRow(TypedDict):
    """One fine-tuning: what was tested, how many inner steps it had cost, and its accuracy."""

    method: str
    inner_steps: int
    seed: int
    spent: int
    final: bool
    target: str
    train_size: int  # 0: all images
    steps: int
    accuracy: float


class NumberedRow(TestRow):
    test_seed: int


@dataclass(frozen=True)
class Stages:
    """The finished stages before the tests, by cell; `chosen` by method."""

    tune: dict[str, TuneResult]
    chosen: dict[str, Candidate]
    train: dict[str, TrainResult]


Summary = dict[str, Json]  # everything that a report says, as data
