"""What goes in and out over HTTP, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from rayctsl.config import FinetuneConfig, RecipeConfig
from rayctsl.contract import JsonObject
from rayctsl.jobs.contracts import Failure, Result, Status, Weights

MAX_POINTS = 200
STEPS_LIMIT = 100_000
ID = r"^[a-z0-9][a-z0-9._-]{0,95}$"
DATASET_NAME = r"^[a-z0-9][a-z0-9_-]{0,63}(@[0-9]{1,4})?$"
JOB_ID = r"^ft-[0-9a-f]{16}$"

MINIMA = {"alpha": 1e-12}
MAXIMA = {  # what a guest may ask for, where the recipe itself knows no bound
    "steps": STEPS_LIMIT,
    "evaluate_every": STEPS_LIMIT,
    "train_size": 100_000_000,
    "batch_size": 1024,
    "alpha": 10.0,
    "weight_decay": 1.0,
    "decay": 10.0,
    "adam_epsilon": 1.0,
    "crop_padding": 64,
}
MAX_ITEMS = {"decay_at": 20}


def _add_bounds(schema: JsonObject) -> None:
    """The bounds that `RecipeRequest` checks, for those who read the document: clients and the page's form."""
    for name, found in schema["properties"].items():
        for kind in (found, *found.get("anyOf", ())):
            if kind.get("type") in ("integer", "number") and name in MAXIMA:
                kind["maximum"] = MAXIMA[name]
            if kind.get("type") in ("integer", "number") and name in MINIMA:
                kind["minimum"] = MINIMA[name]
            if kind.get("type") == "array" and name in MAX_ITEMS:
                kind["maxItems"] = MAX_ITEMS[name]


class RecipeRequest(RecipeConfig):
    """A recipe as guests send it: as JSON, and within bounds."""

    model_config = ConfigDict(strict=True, json_schema_extra=_add_bounds)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        """JSON knows one kind of number, so 5.0 is the integer 5, and one kind of list."""
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return tuple(value) if isinstance(value, list) else value

    @field_validator("*", mode="after")
    @classmethod
    def _bounded(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        if isinstance(value, (int, float)) and value > MAXIMA.get(name, value):
            raise PydanticCustomError("less_than_equal", "too large", {"le": MAXIMA[name]})
        if isinstance(value, (int, float)) and value < MINIMA.get(name, value):
            raise PydanticCustomError("greater_than_equal", "too small", {"ge": MINIMA[name]})
        if isinstance(value, tuple) and len(value) > MAX_ITEMS.get(name, len(value)):
            raise PydanticCustomError("too_long", "too long", {"max_length": MAX_ITEMS[name]})
        return value


class WebhookRequest(BaseModel):
    """Who is told when the job has ended: a signed POST, tried again for hours."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, Field(max_length=2000, pattern=r"^https?://[A-Za-z0-9.:\[\]_-]+([/?][!-~]*)?$")]
    """http:// or https://, not in a private network unless the operator allows it."""
    secret: Annotated[str, Field(min_length=16, max_length=128, pattern="^[!-~]*$")]
    """The key of the signature; it is never shown again."""


class WebhookState(BaseModel):
    status: Literal["waiting", "delivered", "failed"]
    attempts: int
    error: str | None = Field(description="Why the last try failed")


class FinetuneRequest(RecipeRequest):
    """A fine-tuning job. Everything but the dataset has a default; the paper's where it has one."""

    dataset: Annotated[str, Field(pattern=DATASET_NAME)]
    """A dataset's name, see GET /datasets."""
    initialization: Annotated[str, Field(pattern=ID)] | None = None
    """Which initialization to start from; `latest`, which is the default, or `best`, that of the dataset's best job."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Same request, same seed, same result."""
    compare_with_scratch: bool = False
    """Train from random weights too, on the same batches: twice the time."""
    label: Annotated[str, Field(max_length=200)] = ""
    """Any text, shown beside the job."""
    webhook: WebhookRequest | None = None
    """Who is to be told of its end."""

    def recipe(self, num_test: int) -> FinetuneConfig:
        """The recipe alone, with as many evaluations as are worth their time and can be drawn."""
        fields = self.model_dump(include=set(RecipeConfig.model_fields))
        period = max(self.evaluation_period(num_test, points=20), -(-self.steps // MAX_POINTS))
        return FinetuneConfig(**{**fields, "evaluate_every": period}, seeds=1)


class JobPoint(BaseModel):
    step: int
    loss: float = Field(description="Mean training loss since the last point")
    accuracy: float = Field(description="On the test images, 0 to 1")


class Curves(BaseModel):
    initialization: list[JobPoint]
    scratch: list[JobPoint] | None = None


class JobProgress(BaseModel):
    step: int
    steps: int
    fraction: float


class JobWeights(Weights):
    url: str | None = Field(description="null once the model was deleted")


class JobResult(Result):
    weights: JobWeights


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
    config: RecipeConfig
    created_at: float = Field(description="Seconds since 1970, as all times")
    started_at: float | None
    finished_at: float | None
    predicted_seconds: float | None = Field(
        default=None, description="How long it will run, by what similar jobs took; null when none has ended yet"
    )
    attempt: int = Field(description="How often the job was given to a worker; it goes on from its last checkpoint")
    progress: JobProgress
    metrics: Curves | None = Field(default=None, description="The curves so far; absent in lists")
    result: JobResult | None
    error: Failure | None
    webhook: WebhookState | None = Field(default=None, description="How the telling of its end went; absent in lists")


class JobList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Job]
    has_more: bool


class DatasetDocument(BaseModel):
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
    data: list[DatasetDocument]
    has_more: bool = False


class InitializationDocument(BaseModel):
    """The card of an initialization; cards may hold more than is named here."""

    model_config = ConfigDict(extra="allow")

    object: Literal["initialization"] = "initialization"
    id: str
    model: JsonObject
    sha256: str
    created: str


class BrokenDocument(BaseModel):
    """A card that cannot be read, asked for with `broken=true`."""

    object: Literal["broken"] = "broken"
    id: str = Field(description="Its folder in the storage")
    reason: str


class InitializationList(BaseModel):
    object: Literal["list"] = "list"
    data: list[InitializationDocument | BrokenDocument]
    has_more: bool


class ClassProbability(BaseModel):
    name: str
    probability: float


class PredictionDocument(BaseModel):
    object: Literal["prediction"] = "prediction"
    job: str
    classes: list[ClassProbability] = Field(description="Likeliest first")


class NamedPrediction(BaseModel):
    name: str = Field(description="The file's, as it was sent")
    classes: list[ClassProbability] = Field(default=[], description="Likeliest first")
    error: str | None = Field(default=None, description="Why this image could not be classified")


class PredictionList(BaseModel):
    object: Literal["list"] = "list"
    job: str
    data: list[NamedPrediction] = Field(description="In the order of the images")


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    ray: Literal["up", "down"] | None = None
    dispatcher: Literal["running", "standby"] | None = None
    reasons: list[str] | None = Field(default=None, description="Why it is degraded, a sentence each")
