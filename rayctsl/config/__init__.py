"""The typed config of a run: what is learned, how, and on which machines.

`load_config(path, overrides)` is the one way in, for files, command lines, sweeps and HTTP alike. Every default is the
paper's image experiment. Nothing here imports torch or ray, so that `--help` and validation are instant.
"""

from rayctsl.config.loading import (
    Overrides,
    apply_overrides,
    build_config,
    dump_config,
    load_config,
    read_yaml,
    shipped_configs,
)
from rayctsl.config.methods import (
    METHOD_CONFIGS,
    AnyMethod,
    FomamlPPConfig,
    ImamlConfig,
    LeapConfig,
    MethodConfig,
    ReptileConfig,
    ShiftingConfig,
    SingleConfig,
)
from rayctsl.config.run import Config
from rayctsl.config.sections import (
    MODEL_NAMES,
    Count,
    DataConfig,
    FinetuneConfig,
    InnerConfig,
    ModelConfig,
    NonNegative,
    OptimizerConfig,
    Positive,
    RecipeConfig,
    ResetConfig,
    ScheduleConfig,
    Section,
    TopologyConfig,
    ValidationConfig,
    check_model_name,
)

__all__ = [
    "METHOD_CONFIGS",
    "MODEL_NAMES",
    "AnyMethod",
    "Config",
    "Count",
    "DataConfig",
    "FinetuneConfig",
    "FomamlPPConfig",
    "ImamlConfig",
    "InnerConfig",
    "LeapConfig",
    "MethodConfig",
    "ModelConfig",
    "NonNegative",
    "OptimizerConfig",
    "Overrides",
    "Positive",
    "RecipeConfig",
    "ReptileConfig",
    "ResetConfig",
    "ScheduleConfig",
    "Section",
    "ShiftingConfig",
    "SingleConfig",
    "TopologyConfig",
    "ValidationConfig",
    "apply_overrides",
    "build_config",
    "check_model_name",
    "dump_config",
    "load_config",
    "read_yaml",
    "shipped_configs",
]
