"""The section `method`: a class for every method, with what the paper uses and what kind of method it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from rayctsl.config.sections import Count, NonNegative, Positive, Section


class MethodConfig(Section):
    paper_betas: ClassVar[Mapping[int, float]] = {1000: 1.0}  # by inner steps K
    trains: ClassVar[bool] = True  # whether phi moves at all
    one_task: ClassVar[bool] = False  # whether it spends everything on one of the tasks
    name: str
    beta: NonNegative | None = None
    """Meta learning rate; the paper's value for the nearest K when absent."""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay per meta-update of an exponential average of phi, which is then the result; 0 keeps phi itself."""
    adaptive_beta: bool = False
    """Multiply beta by half the tasks' disagreement where that is more than 1."""

    @classmethod
    def paper_beta(cls, inner_steps: int) -> float:
        """The paper tunes beta by K: its value for the nearest K, on a logarithmic scale."""
        return cls.paper_betas[min(cls.paper_betas, key=lambda known: abs(math.log(known / inner_steps)))]


class ShiftingConfig(MethodConfig):
    paper_betas: ClassVar[Mapping[int, float]] = {10: 1.0, 100: 0.1, 1000: 0.01}
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
    paper_betas: ClassVar[Mapping[int, float]] = {10: 5.0, 100: 2.0, 1000: 1.0}
    name: Literal["reptile"] = "reptile"


class FomamlConfig(MethodConfig):
    paper_betas: ClassVar[Mapping[int, float]] = {10: 0.5, 100: 0.2, 1000: 0.1}
    name: Literal["fomaml"] = "fomaml"


class FomamlPPConfig(MethodConfig):
    paper_betas = FomamlConfig.paper_betas
    name: Literal["fomaml_pp"] = "fomaml_pp"
    every: Count = 10
    """Inner steps between two held-out gradients along the trajectory."""
    anneal_trajectories: Annotated[int, Field(ge=0)] = 0
    """Trajectories over which the weights move from equal to the last step alone; 0 keeps them equal."""


class FomamlShiftingConfig(MethodConfig):
    paper_betas: ClassVar[Mapping[int, float]] = {10: 0.05, 100: 0.01, 1000: 0.001}
    name: Literal["fomaml_shifting"] = "fomaml_shifting"


class LeapConfig(MethodConfig):
    paper_betas: ClassVar[Mapping[int, float]] = {10: 0.1, 100: 0.1, 1000: 0.1}
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
    paper_betas: ClassVar[Mapping[int, float]] = {1000: 0.01}
    name: Literal["mtl"] = "mtl"


class SingleConfig(MethodConfig):
    paper_betas: ClassVar[Mapping[int, float]] = {1000: 0.01}
    one_task = True
    name: Literal["single"] = "single"
    source: str | None = None
    """The one task to train on; the first of data.tasks when absent."""


class ScratchConfig(MethodConfig):
    trains = False
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

METHOD_CONFIGS: dict[str, type[MethodConfig]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(AnyMethod)[0])
}


def method_section(raw: object) -> object:
    """The section as people may write it: a name alone is its `name`, and nothing at all is the usual method."""
    if raw is None:
        return {}
    return {"name": raw} if isinstance(raw, str) else raw


def method_config(raw: object) -> type[MethodConfig] | None:
    """The class of the method that a section names; None for a name that nobody knows."""
    section = method_section(raw)
    name = section.get("name", "shifting") if isinstance(section, dict) else None
    return METHOD_CONFIGS.get(name) if isinstance(name, str) else None
