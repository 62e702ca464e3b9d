"""`Config`: everything that a run is a function of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rayctsl.config.methods import AnyMethod, MethodConfig, ShiftingConfig, SingleConfig, method_section
from rayctsl.config.sections import (
    Count,
    DataConfig,
    FinetuneConfig,
    InnerConfig,
    ModelConfig,
    OptimizerConfig,
    ResetConfig,
    ScheduleConfig,
    Section,
    TopologyConfig,
)


class Config(Section):
    seed: Annotated[int, Field(ge=0)] = 0
    """A run is a function of its config and this number."""
    inner_steps: Count = 1000
    """K: inner steps of a trajectory."""
    trajectories: Count = 200
    """M: how often the task learners restart from phi."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    inner: InnerConfig = InnerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    method: Annotated[AnyMethod, Field(validate_default=True)] = ShiftingConfig()
    outer: OptimizerConfig | None = None
    """The rule that turns meta-gradients into Delta; plain SGD with rate beta (the paper) when absent.
    Joint training (`mtl`, `single`) uses the inner rule with rate beta when absent."""
    reset: ResetConfig = ResetConfig()
    own_norm: bool = False
    """Batch-norm scale and shift belong to the task, like its head, and not to phi."""
    finetune: FinetuneConfig = FinetuneConfig()
    topology: TopologyConfig = TopologyConfig()
    on_non_finite: Literal["stop", "drop"] = "stop"
    """A task whose loss is NaN or infinite ends the run, or is left out from then on."""
    snapshot_every: Count = 500
    """Inner steps between two snapshots of the complete state."""
    keep_snapshots: Count = 3
    """How many of the newest whole snapshots stay on disk."""
    log_every: Count = 10
    """Inner steps per row of metrics.parquet."""
    tensorboard: bool | None = None
    """Write TensorBoard files too; where the package is installed and the run folder local when absent."""
    wandb: str | None = None
    """A project of Weights & Biases to log to; WANDB_MODE=offline keeps it in the run folder."""
    mlflow: str | None = None
    """An experiment of MLflow to log to, at MLFLOW_TRACKING_URI."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """bf16 autocasts the forward pass where the processor really has it; tf32 rounds a GPU's products to ten bits."""
    deterministic: bool = False
    """On one kind of GPU a run gives the same bits again, at some cost in speed; on one kind of CPU it does anyway."""
    graphs: Literal["auto", "off"] = "auto"
    """Record a task's step once and replay it, where the accelerator can."""
    compile: bool = False
    """torch.compile the models."""

    @field_validator("method", mode="before")
    @classmethod
    def _name_method(cls, raw: object) -> object:
        section = method_section(raw)
        return {"name": "shifting", **section} if isinstance(section, dict) else section

    @field_validator("method")
    @classmethod
    def _fill_beta(cls, method: MethodConfig, info: ValidationInfo) -> MethodConfig:
        """The paper's beta for the method and K, where none is given; of a K that is wrong its own error tells."""
        if method.beta is not None or "inner_steps" not in info.data:
            return method
        return method.model_copy(update={"beta": method.paper_beta(info.data["inner_steps"])})

    @model_validator(mode="after")
    def _check(self) -> Config:
        if not self.data.tasks:
            raise ValueError("data.tasks is empty: name at least one dataset")
        if len(set(self.data.tasks)) < len(self.data.tasks):
            raise ValueError("data.tasks names a dataset twice")
        if isinstance(self.method, SingleConfig) and self.method.source not in (None, *self.data.tasks):
            raise ValueError(f"method.source {self.method.source!r} is not one of data.tasks")
        return self

    @property
    def total_steps(self) -> int:
        """Inner steps of each task over the whole run (the scratch method takes none)."""
        return self.inner_steps * self.trajectories if self.method.trains else 0
