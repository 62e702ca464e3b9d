"""The typed config of a run: what is learned, how, and on which machines.

`load_config(path, overrides)` is the one way in, for files, command lines, sweeps and HTTP alike. Every default is the
paper's image experiment. Nothing here imports torch or ray, so that `--help` and validation are instant.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Policy = Literal["keep", "reset"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ModelConfig(Section):
    name: str = "resnet20"
    """resnet8, resnet20, resnet32, resnet44, resnet56, resnet18 or resnet34."""
    width: Count = 16
    """Channels of the first stage of the CIFAR-style ResNets."""
    activation: Literal["relu", "softplus"] = "relu"
    """The error analysis needs both."""
    weights: str | None = None
    """Where the backbone starts: "imagenet" (torchvision's download, ResNet-18/34 only), or a local weights file such
    as an initialization's phi.safetensors; random when absent."""


class DataConfig(Section):
    tasks: tuple[str, ...] = (
        "tiny_imagenet_1",
        "tiny_imagenet_2",
        "cifar100",
        "stanford_dogs",
        "aircraft",
        "cub",
        "fashion_mnist",
        "svhn",
    )
    """The meta-training datasets, `name` or `name@size`."""
    root: str | None = None
    """Where prepared datasets are: a path or a pyarrow URI; RAYCTSL_DATA when absent."""
    batch_size: Count = 128
    """Images per inner step."""
    crop_padding: Annotated[int, Field(ge=0)] | None = None
    """Pixels of padding for random crops; an eighth of the image size when absent."""
    flip: bool = True
    """Random horizontal flips."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of a task's training images that methods with held-out batches set apart."""


class OptimizerConfig(Section):
    optimizer: Literal["sgd", "momentum", "nesterov", "adam"] = "sgd"
    """The update rule; its step size is alpha (inner) or beta (outer)."""
    momentum: Fraction = 0.9
    """For `momentum` and `nesterov`."""
    weight_decay: NonNegative = 0.0
    """Added to the gradient as weight_decay * parameters."""
    adam_betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """Decay of Adam's two averages."""
    adam_epsilon: Positive = 1e-8
    """Added to Adam's denominator."""


class InnerConfig(OptimizerConfig):
    optimizer: Literal["sgd", "momentum", "nesterov", "adam"] = "momentum"
    """The task learners' update rule."""
    alpha: NonNegative = 0.01
    """Inner learning rate."""
    weight_decay: NonNegative = 5e-4
    """Added to the gradient as weight_decay * parameters."""


class ScheduleConfig(Section):
    """How the inner rate changes from alpha down; `constant` twice is the paper."""

    within: Literal["constant", "linear", "cosine"] = "constant"
    """From the first step of a trajectory to its last, each trajectory anew."""
    over: Literal["constant", "linear", "cosine"] = "constant"
    """From the first trajectory to the last."""


class ResetConfig(Section):
    """What happens at the start of a trajectory to the state that is not part of phi."""

    optimizer: Policy = "keep"
    """Momentum and Adam averages."""
    head: Policy = "keep"
    """The task's last layer."""
    norm_stats: Policy = "keep"
    """Batch-norm running statistics."""


class MethodConfig(Section):
    paper_betas: ClassVar[Mapping[int, float]] = {1000: 1.0}  # by inner steps K
    name: str
    beta: NonNegative | None = None
    """Meta learning rate; the paper's value for the nearest K when absent."""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay per meta-update of an exponential average of phi, which is then the result; 0 keeps phi itself."""


class ShiftingConfig(MethodConfig):
    paper_betas = {10: 1.0, 100: 0.1, 1000: 0.01}
    name: Literal["shifting"] = "shifting"
    aggregate_every: Count = 1
    """Inner steps between two meta-updates."""
    shift_delay: Literal[0, 1] = 0
    """1 applies each Delta one step late, so that its transport hides behind the next gradient."""
    pull: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the way back to phi that theta goes after every shift: 0 is the paper, 1 leaves no trajectories."""


class NoShiftingConfig(MethodConfig):
    paper_betas = ShiftingConfig.paper_betas
    name: Literal["no_shifting"] = "no_shifting"


class RandomShiftingConfig(MethodConfig):
    paper_betas = ShiftingConfig.paper_betas
    name: Literal["random_shifting"] = "random_shifting"


class AccurateConfig(MethodConfig):
    paper_betas = ShiftingConfig.paper_betas
    name: Literal["accurate"] = "accurate"


class ReptileConfig(MethodConfig):
    paper_betas = {10: 5.0, 100: 2.0, 1000: 1.0}
    name: Literal["reptile"] = "reptile"


class FomamlConfig(MethodConfig):
    paper_betas = {10: 0.5, 100: 0.2, 1000: 0.1}
    name: Literal["fomaml"] = "fomaml"


class FomamlPPConfig(MethodConfig):
    paper_betas = FomamlConfig.paper_betas
    name: Literal["fomaml_pp"] = "fomaml_pp"
    every: Count = 10
    """Inner steps between two held-out gradients along the trajectory."""
    anneal_trajectories: Annotated[int, Field(ge=0)] = 0
    """Trajectories over which the weights move from equal to the last step alone; 0 keeps them equal."""


class FomamlShiftingConfig(MethodConfig):
    paper_betas = {10: 0.05, 100: 0.01, 1000: 0.001}
    name: Literal["fomaml_shifting"] = "fomaml_shifting"


class LeapConfig(MethodConfig):
    paper_betas = {10: 0.1, 100: 0.1, 1000: 0.1}
    name: Literal["leap"] = "leap"
    norm: bool = True
    """True: path length; False: path energy (squared distances)."""
    loss: bool = True
    """Measure the path on the loss surface, not in parameter space alone."""
    stabilizer: bool = True
    """Count a rise of the loss as a fall, so that noise never pulls phi uphill."""


class ImamlConfig(MethodConfig):
    paper_betas = FomamlConfig.paper_betas
    name: Literal["imaml"] = "imaml"
    regularization: Positive = 1.0
    """lambda: strength of the pull of theta towards phi."""
    proximal: bool = True
    """Inner steps minimise loss + lambda/2 |theta - phi|^2, as the implicit gradient assumes."""
    cg_steps: Count = 5
    """Conjugate-gradient iterations."""
    cg_damping: NonNegative = 1.0
    """Added to the Hessian's diagonal before the solve (it may have negative curvature)."""


class AnilConfig(MethodConfig):
    paper_betas = FomamlConfig.paper_betas
    name: Literal["anil"] = "anil"


class MtlConfig(MethodConfig):
    paper_betas = {1000: 0.01}
    name: Literal["mtl"] = "mtl"


class SingleConfig(MethodConfig):
    paper_betas = {1000: 0.01}
    name: Literal["single"] = "single"
    source: str | None = None
    """The one task to train on; the first of data.tasks when absent."""


class ScratchConfig(MethodConfig):
    name: Literal["scratch"] = "scratch"


AnyMethod = Annotated[
    ShiftingConfig
    | NoShiftingConfig
    | RandomShiftingConfig
    | AccurateConfig
    | ReptileConfig
    | FomamlConfig
    | FomamlPPConfig
    | FomamlShiftingConfig
    | LeapConfig
    | ImamlConfig
    | AnilConfig
    | MtlConfig
    | SingleConfig
    | ScratchConfig,
    Field(discriminator="name"),
]


class RecipeConfig(InnerConfig):
    """Ordinary training on a target dataset from an initialization, once.

    The only place where these fields stand: the service's request and form, the client's flags and the worker take
    them from here, titles for people included.
    """

    steps: Count = 1000
    """Training steps."""
    train_size: Annotated[Count | None, Field(title="Training images")] = None
    """Training images to use, drawn class by class from the seed; all when absent."""
    alpha: Annotated[NonNegative, Field(title="Learning rate")] = 0.1
    """Starting learning rate."""
    batch_size: Count = 128
    """Images per step (fewer when the training set is smaller)."""
    optimizer: Literal["sgd", "momentum", "nesterov", "adam"] = "nesterov"
    """The update rule."""
    decay_at: Annotated[tuple[Share, ...], Field(title="Rate falls at")] = (0.4, 0.7, 0.9)
    """Shares of the steps after which the learning rate falls."""
    decay: Annotated[Positive, Field(title="Factor of each fall")] = 0.2
    """What the learning rate is multiplied with at each fall."""
    crop_padding: Annotated[int, Field(ge=0)] | None = None
    """Pixels of padding for random crops; an eighth of the image size when absent."""
    flip: Annotated[bool, Field(title="Random mirror images")] = True
    """Random horizontal flips."""
    evaluate_every: Annotated[Count | None, Field(title="Steps between points")] = None
    """Steps between two evaluations on the test split; chosen by what they cost when absent."""

    def evaluation_period(self, num_test: int, points: int = 10) -> int:
        """Steps between two evaluations: as asked for, else `points` of them while they cost a fifth of the training.

        A training step costs about three forward passes of its batch, an evaluation one of every test image.
        """
        if self.evaluate_every is not None:
            return self.evaluate_every
        affordable = math.ceil(num_test / (0.2 * 3 * self.batch_size))
        return max(1, self.steps // points, affordable)


class FinetuneConfig(RecipeConfig):
    """Meta-testing: the recipe over several seeds."""

    seeds: Count = 5
    """Independent runs for mean and interval."""


class TopologyConfig(Section):
    """Machines only: two runs with the same science differ here and nowhere else."""

    workers: Count | None = None
    """Task-learner actors; as many as the cluster can really run when absent."""
    cpus_per_learner: NonNegative = 1.0
    """CPUs reserved for each learner."""
    gpus_per_learner: NonNegative = 0.0
    """GPUs reserved for each learner; a fraction shares one."""
    meta_resources: dict[str, NonNegative] = {}
    """What the meta-learner reserves besides the learners' share, to keep it on nodes that are not taken away.
    Example: {coordinator: 1}, a resource that only such nodes have."""
    transport: Literal["collective", "objects"] = "collective"
    """How contributions and shifts travel."""
    max_failures: Annotated[int, Field(ge=0)] = 20
    """Recoveries before the run gives up."""
    timeout_seconds: Positive = 300.0
    """Silence of a peer that has not died after which the group counts as broken."""
    wait_seconds: NonNegative = 0.0
    """How long to wait for a cluster that is too small to grow; 0 fails at once."""

    @property
    def threads(self) -> int:
        """Of every learner, on every node: another number would round some operations otherwise."""
        return max(1, int(self.cpus_per_learner))


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
    method: AnyMethod = ShiftingConfig()
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
    """How many of the newest snapshots stay on disk."""
    log_every: Count = 10
    """Inner steps per row of metrics.parquet."""
    tensorboard: bool = False
    """Write TensorBoard files too."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 autocasts the forward pass where the processor really has it."""
    compile: bool = False
    """torch.compile the models."""

    @model_validator(mode="before")
    @classmethod
    def _fill_beta(cls, raw: Any) -> Any:
        """The paper tunes beta per method and K: take its value for the nearest K, on a logarithmic scale."""
        method = raw.get("method", {}) if isinstance(raw, dict) else None
        method = method.model_dump() if isinstance(method, MethodConfig) else method
        if not isinstance(method, dict):
            return raw
        method = {"name": "shifting", **method}
        kind, steps = METHOD_CONFIGS.get(method["name"]), raw.get("inner_steps", 1000)
        if kind is not None and method.get("beta") is None and isinstance(steps, int) and steps >= 1:
            nearest = min(kind.paper_betas, key=lambda known: abs(math.log(known / steps)))
            method["beta"] = kind.paper_betas[nearest]
        return {**raw, "method": method}

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
        return 0 if self.method.name == "scratch" else self.inner_steps * self.trajectories


SECTIONS: dict[str, type[BaseModel]] = {  # where a bare key is looked for; `finetune` repeats names and is left out
    "model": ModelConfig,
    "data": DataConfig,
    "inner": InnerConfig,
    "schedule": ScheduleConfig,
    "method": MethodConfig,
    "reset": ResetConfig,
    "topology": TopologyConfig,
}
METHOD_CONFIGS: dict[str, type[MethodConfig]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(AnyMethod)[0])
}


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a YAML file (or start from the defaults) and apply overrides by dotted key.

    Example: load_config("configs/demo.yaml", {"method.name": "reptile", "inner.alpha": 0.05, "beta": 2})
    """
    raw = read_yaml(path) if path is not None else {}
    return build_config(apply_overrides(raw, overrides or {}))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A file of keys and values; ValueError with one sentence when it is not one."""
    try:
        raw = yaml.safe_load(Path(path).read_text()) or {}
    except FileNotFoundError:
        raise ValueError(f"there is no config file {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} must hold keys and values, not a {type(raw).__name__}")
    return raw


def build_config(raw: Mapping[str, Any]) -> Config:
    """Validate a plain dict; ValueError with one sentence for the first thing that is wrong."""
    try:
        return Config.model_validate(dict(raw))
    except ValidationError as error:
        raise ValueError(_explain(error.errors()[0])) from None


def apply_overrides(raw: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `raw` with dotted keys replaced; a bare key that only one section has finds its section."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in raw.items()}
    # The method's name first: its section starts afresh when it changes, for the keys belong to the old method.
    for key in sorted(overrides, key=lambda key: key not in ("method", "method.name")):
        value = overrides[key]
        if key == "method" and isinstance(value, str):
            key = "method.name"
        if key == "method.name" and result.get("method", {}).get("name", "shifting") != value:
            result["method"] = {}
        parts = _locate(key, result).split(".")
        target = result
        for part in parts[:-1]:
            child = target.get(part)
            child = dict(child) if isinstance(child, dict) else {}
            target[part] = child
            target = child
        target[parts[-1]] = value
    return result


def _locate(key: str, raw: Mapping[str, Any]) -> str:
    """`beta` -> `method.beta`, when exactly one section has that field and the top level has not."""
    if "." in key or key in Config.model_fields:
        return key
    method = METHOD_CONFIGS.get(dict(raw.get("method") or {}).get("name", "shifting"), MethodConfig)
    sections = {**SECTIONS, "method": method}
    owners = [name for name, section in sections.items() if key in section.model_fields]
    return f"{owners[0]}.{key}" if len(owners) == 1 else key


def dump_config(config: Config) -> str:
    """The resolved config as YAML, in the order of the fields."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, default_flow_style=None, width=110)


def suggest(word: str, known: Any) -> str:
    """'; did you mean X?' when something known is close, else the choices when they are few."""
    names = sorted(str(name) for name in known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 20 else ""


def _explain(error: Any) -> str:
    tags = set(METHOD_CONFIGS)
    location = [str(part) for part in error["loc"] if str(part) not in tags or len(error["loc"]) == 1]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        section = _section_at(error["loc"][:-1])
        known = list(section.model_fields)
        if section is Config:  # a bare key may mean a key of any section
            known += [field for part in SECTIONS.values() for field in part.model_fields]
        return f"config key {key!r} is unknown" + suggest(location[-1], set(known))
    if error["type"] == "union_tag_invalid":
        word = error["ctx"]["tag"]
        return f"method {word!r} is unknown" + suggest(word, METHOD_CONFIGS)
    message = error["msg"].removeprefix("Value error, ")
    if not key:
        return message
    shown = repr(error["input"])
    return f"{key}: {message[0].lower()}{message[1:]}" + (f" (got {shown})" if len(shown) < 60 else "")


def _section_at(location: tuple[Any, ...]) -> type[BaseModel]:
    section: Any = Config
    for part in location:
        if section is not Config and issubclass(section, MethodConfig):
            continue
        if part == "method":
            section = METHOD_CONFIGS.get(str(location[-1]), MethodConfig)
        else:
            annotation = section.model_fields[part].annotation
            section = next((a for a in (annotation, *get_args(annotation)) if hasattr(a, "model_fields")), Config)
    return section
