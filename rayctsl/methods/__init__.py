"""Every method by name."""

from __future__ import annotations

from typing import Any

from rayctsl.config import MethodConfig
from rayctsl.methods.ablations import NoShifting, RandomShifting
from rayctsl.methods.accurate import Accurate
from rayctsl.methods.base import Learner, Method, Step
from rayctsl.methods.fomaml import Anil, Fomaml, FomamlPP, FomamlShifting
from rayctsl.methods.imaml import Imaml
from rayctsl.methods.joint import Mtl, Scratch, Single
from rayctsl.methods.leap import Leap
from rayctsl.methods.reptile import Reptile
from rayctsl.methods.shifting import Shifting

METHODS: dict[str, Any] = {
    "shifting": Shifting,
    "no_shifting": NoShifting,
    "random_shifting": RandomShifting,
    "accurate": Accurate,
    "reptile": Reptile,
    "fomaml": Fomaml,
    "fomaml_pp": FomamlPP,
    "fomaml_shifting": FomamlShifting,
    "leap": Leap,
    "imaml": Imaml,
    "anil": Anil,
    "mtl": Mtl,
    "single": Single,
    "scratch": Scratch,
}

__all__ = ["METHODS", "Learner", "Method", "Step", "build_method"]


def build_method(config: MethodConfig, seed: int = 0) -> Method:
    """The method that a config names."""
    return METHODS[config.name](config, seed)
