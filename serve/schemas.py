"""What goes in and out over HTTP, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_POINTS = 200
STEPS_LIMIT = 100_000
ID = r"^[a-z0-9][a-z0-9._-]{0,95}$"
DATASET_NAME = r"^[a-z0-9][a-z0-9_-]{0,63}(@[0-9]{1,4})?$"
JOB_ID = r"^ft-[0-9a-f]{16}$"
Status = Literal["queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled"]


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 5.0 is the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)


class FinetuneRequest(BaseModel):
    """A fine-tuning job. Everything but the dataset has a default; the paper's where it has one."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    dataset: Annotated[str, Field(pattern=DATASET_NAME)]
    """A dataset's name, see GET /datasets."""
    initialization: Annotated[str, Field(pattern=ID)] | None = None
    """Which initialization to start from; the newest when absent."""
    steps: Annotated[int, Field(ge=1, le=STEPS_LIMIT), WHOLE] = 1000
    """Training steps."""
    train_size: Annotated[int, Field(ge=1, le=100_000_000), WHOLE] | None = None
    """Training images to use, drawn class by class from the seed; all when absent."""
    seed: Annotated[int, Field(ge=0, lt=2**31), WHOLE] = 0
    """Same request, same seed, same result."""
    alpha: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 0.1
    """Starting learning rate."""
    batch_size: Annotated[int, Field(ge=1, le=1024), WHOLE] = 128
    """Images per step."""
    weight_decay: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 5e-4
    """Weight decay."""
    evaluate_every: Annotated[int, Field(ge=1, le=STEPS_LIMIT), WHOLE] | None = None
    """Steps between two points of the curve; a twentieth of the steps when absent, and at most 200 points."""
    compare_with_scratch: bool = False
    """Train from random weights too, on the same batches."""
    label: Annotated[str, Field(max_length=200)] = ""
    """Any text, shown beside the job."""

    @property
    def evaluation_period(self) -> int:
        period = self.evaluate_every or max(1, self.steps // 20)
        return max(period, -(-self.steps // MAX_POINTS))


class Point(BaseModel):
    step: int
    loss: float = Field(description="Mean training loss since the last point")
    accuracy: float = Field(description="On the test images, 0 to 1")


class Curves(BaseModel):
    initialization: list[Point]
    scratch: list[Point] | None = None


class Progress(BaseModel):
    step: int
    steps: int
    fraction: float


class Weights(BaseModel):
    sha256: str
    size: int
    url: str


class Result(BaseModel):
    accuracy: float = Field(description="On the test images, 0 to 1")
    scratch_accuracy: float | None = None
    loss: float
    train_size: int
    test_size: int
    num_classes: int
    dataset_checksum: str
    weights: Weights
    versions: dict[str, str]


class JobError(BaseModel):
    code: str
    message: str


class UsedInitialization(BaseModel):
    id: str
    sha256: str


class Job(BaseModel):
    """A fine-tuning job; `config` and `initialization` are all that is needed to repeat it."""

    object: Literal["finetune"] = "finetune"
    id: str
    status: Status
    label: str
    dataset: str
    initialization: UsedInitialization
    seed: int
    compare_with_scratch: bool
    config: dict[str, Any]
    created_at: float = Field(description="Seconds since 1970, as all times")
    started_at: float | None
    finished_at: float | None
    attempt: int = Field(description="How often the job was given to a worker; it goes on from its last checkpoint")
    progress: Progress
    metrics: Curves | None = Field(default=None, description="The curves so far; absent in lists")
    result: Result | None
    error: JobError | None


class JobList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Job]
    has_more: bool


class Dataset(BaseModel):
    name: str
    prepared: bool = Field(description="Whether a job can use it now")
    source: str = Field(description="embedded, imported or catalog")
    num_classes: int
    num_train: int | None
    num_test: int
    height: int
    width: int
    channels: int


class DatasetList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Dataset]
    has_more: bool = False


class Initialization(BaseModel):
    """The card of an initialization; cards may hold more than is named here."""

    model_config = ConfigDict(extra="allow")

    object: Literal["initialization"] = "initialization"
    id: str
    model: dict[str, Any]
    sha256: str
    created: str


class InitializationList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Initialization]
    has_more: bool


class ClassProbability(BaseModel):
    name: str
    probability: float


class Prediction(BaseModel):
    object: Literal["prediction"] = "prediction"
    job: str
    classes: list[ClassProbability] = Field(description="Likeliest first")


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    ray: Literal["up", "down"] | None = None
    dispatcher: Literal["running", "standby"] | None = None
