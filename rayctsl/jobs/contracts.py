"""What service and worker tell each other through files, and what a fine-tuned model says of itself.

Each is a versioned document (`rayctsl.contract`): a worker of one release and a service of the next understand each
other, and what an earlier release wrote can still be read.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, FiniteFloat

from rayctsl.card import Checksum
from rayctsl.config import FinetuneConfig, ModelConfig, Section
from rayctsl.contract import Contract, JsonObject, parse_json, read_contract

Status = Literal["queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled"]
EndStatus = Literal["succeeded", "failed", "cancelled"]
STATUSES: tuple[str, ...] = get_args(Status)
Step = Annotated[int, Field(ge=0)]
RunName = Literal["initialization", "scratch"]


class Source(Section):
    """The initialization that a job starts from."""

    id: str
    sha256: str
    """Of its phi.safetensors: a job never runs on other weights than it was accepted for."""
    path: str


class JobSpec(Contract):
    """All that a worker needs to know; written once, by whoever accepted the job."""

    dataset: str
    data_root: str
    initialization: Source
    seed: Annotated[int, Field(ge=0)]
    compare_with_scratch: bool
    config: FinetuneConfig


class Assignment(Contract):
    """What a worker is to do next. Without a job: leave."""

    job: str | None
    attempt: Annotated[int, Field(ge=0)] = 0


class Heartbeat(Contract):
    """A worker's sign of life: the count moves as long as it lives."""

    count: int
    pid: int


class StepProgress(Contract):
    """How far an attempt has come."""

    step: Step
    at: float


class Weights(Section):
    sha256: Checksum
    size: int


class Result(Section):
    """What a job that succeeded has found out."""

    accuracy: FiniteFloat
    scratch_accuracy: FiniteFloat | None = None
    loss: FiniteFloat
    train_size: int
    test_size: int
    num_classes: int
    dataset_checksum: str
    weights: Weights
    versions: dict[str, str]


class Failure(Section):
    code: str
    message: str


class Outcome(Contract):
    """How an attempt ended; a job has ended when this file is there."""

    status: EndStatus
    result: Result | None = None
    error: Failure | None = None
    attempt: int
    finished_at: float


class EventBase(Contract):
    id: Annotated[int, Field(ge=1)]
    at: float
    """Seconds since 1970."""


class Started(EventBase):
    type: Literal["started"] = "started"
    steps: int
    runs: tuple[str, ...]


class Resumed(EventBase):
    type: Literal["resumed"] = "resumed"
    attempt: int
    step: Step


class PointReached(EventBase):
    """One evaluation. Example: PointReached(id=3, at=1.7e9, run="scratch", step=40, loss=1.2, accuracy=0.6)"""

    type: Literal["point"] = "point"
    run: RunName
    step: Step
    loss: FiniteFloat
    """Mean training loss since the last point."""
    accuracy: FiniteFloat


JobEvent = Started | Resumed | PointReached
EVENT_KINDS: dict[str, type[JobEvent]] = {"started": Started, "resumed": Resumed, "point": PointReached}


def read_event(line: bytes) -> JobEvent:
    """One line of an event log."""
    raw = parse_json(line, "an event")
    kind = EVENT_KINDS.get(str(raw.get("type")))
    if kind is None:
        raise ValueError(f"an event is of the unknown type {raw.get('type')!r}: a newer rayctsl wrote it")
    return read_contract(kind, raw, "an event")


class ModelFacts(Contract):
    """What the metadata of a fine-tuned model's file holds."""

    model: ModelConfig
    dataset: str
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    """Height, width, channels."""
    mean: tuple[float, ...]
    std: tuple[float, ...]


def read_spec(raw: bytes | JsonObject) -> JobSpec:
    return read_contract(JobSpec, raw, "the job's spec")
