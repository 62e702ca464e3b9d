"""The sections of a config besides the method's: model, data, optimizers, fine-tuning, machines."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rayctsl.words import suggest

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Policy = Literal["keep", "reset"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


MODEL_NAMES = ("resnet8", "resnet20", "resnet32", "resnet44", "resnet56", "resnet18", "resnet34")


def check_model_name(name: str) -> None:
    """Refuse a built-in model's misspelt name, without torch; names with a slash or colon belong to other libraries."""
    if name not in MODEL_NAMES and not {"/", ":"} & set(name):
        raise ValueError(f"model {name!r} is unknown{suggest(name, MODEL_NAMES)}")


class ModelConfig(Section):
    name: str = "resnet20"
    """resnet8, resnet20, resnet32, resnet44, resnet56, resnet18, resnet34, or timm/<any model of timm>."""
    width: Count = 16
    """Channels of the first stage of the CIFAR-style ResNets."""
    activation: Literal["relu", "softplus"] = "relu"
    """The error analysis needs both."""
    weights: str | None = None
    """Where the backbone starts: "imagenet" (torchvision's download, ResNet-18/34 only), "pretrained" (timm's, from the
    Hub, timm/… only), or a local weights file such as an initialization's phi.safetensors; random when absent."""
    own: str | None = None
    """The class of a model that your program brings; set by `rayctsl.train(…, model=…)`."""


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
    """Where prepared datasets are: a path or a pyarrow URI; RAYCTSL_DATA when absent. A run keeps it in full."""
    checksums: dict[str, str] = {}
    """Of the tasks' images, filled in when a run begins: a node or a resume that finds others is refused."""
    batch_size: Count = 128
    """Images per inner step."""
    crop_padding: Annotated[int, Field(ge=0)] | None = None
    """Pixels of padding for random crops; an eighth of the image size when absent."""
    flip: bool | Literal["always"] = True
    """Random horizontal flips of datasets whose classes they keep (not of photographed digits and letters; no character
    of an embedded alphabet mirrors another); "always": of every one, as in the paper."""
    channels: Literal[1, 3] = 3
    """Of the images that a model of your own is given; built-in models take grey and colour as they are."""
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
    """Random horizontal flips, where they keep the classes (not of photographed digits and letters)."""
    freeze_backbone: Annotated[bool, Field(title="Train the head only")] = False
    """A linear probe: the backbone stays as it is, but for its batch-norm statistics."""
    head_steps: Annotated[int, Field(ge=0, title="Steps for the head first")] = 0
    """Steps at the beginning that train the head alone, so that its first errors do not spoil the backbone."""
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


class ValidationConfig(FinetuneConfig):
    """The objective: fine-tuning on images of the meta-training tasks that meta-training never saw."""

    steps: Count = 50
    """Training steps of each fine-tuning."""
    seeds: Count = 1
    """Fine-tunings of each task."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of each task's training images kept from meta-training: half to fine-tune on, half to measure on."""
    test_size: Count | None = None
    """Images to measure on; all of that half when absent."""


class TopologyConfig(Section):
    """Machines only: two runs with the same science differ here and nowhere else."""

    workers: Count | None = None
    """The most task-learner actors; as many as the cluster can really run when absent."""
    min_workers: Count = 1
    """The fewest that a run goes on with when the cluster has no room for more."""
    cpus_per_learner: NonNegative = 1.0
    """CPUs reserved for each learner."""
    gpus_per_learner: NonNegative | Literal["auto"] = "auto"
    """GPUs reserved for each learner; a fraction shares one. auto: a whole one each if the cluster has any, and as many
    learners as there are GPUs, with several tasks each where there are more tasks."""
    meta_resources: dict[str, NonNegative] = {}
    """What the meta-learner reserves besides the learners' share, to keep it on nodes that are not taken away.
    Example: {coordinator: 1}, a resource that only such nodes have."""
    transport: Literal["collective", "objects"] = "collective"
    """How contributions and shifts travel."""
    max_failures: Annotated[int, Field(ge=0)] = 20
    """Faults without a new snapshot in between before the run gives up; nodes that are taken away do not count."""
    timeout_seconds: Positive = 300.0
    """Silence of a peer that has not died after which the group counts as broken."""
    wait_seconds: NonNegative = 0.0
    """How long to wait for `workers` learners before going on with fewer, at the start and after a fault."""

    @property
    def threads(self) -> int:
        """Of every learner, on every node: another number would round some operations otherwise."""
        return max(1, int(self.cpus_per_learner))
