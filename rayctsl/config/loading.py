"""A config from a file, with overrides by dotted key: one way for files, command lines, sweeps and HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from rayctsl.config.methods import MethodConfig, method_config, method_section
from rayctsl.config.run import Config
from rayctsl.config.sections import DataConfig, InnerConfig, ModelConfig, ResetConfig, ScheduleConfig, TopologyConfig
from rayctsl.contract import Json, JsonObject
from rayctsl.words import explain, one_line

QUICK = "RAYCTSL_QUICK"  # set, it cuts every run short
Overrides = Mapping[str, Json]  # config keys, dotted or bare, and their values

SECTIONS: dict[str, type[BaseModel]] = {  # where a bare key is looked for; `finetune` repeats names and is left out
    "model": ModelConfig,
    "data": DataConfig,
    "inner": InnerConfig,
    "schedule": ScheduleConfig,
    "method": MethodConfig,
    "reset": ResetConfig,
    "topology": TopologyConfig,
}


def load_config(path: str | Path | None = None, overrides: Overrides | None = None) -> Config:
    """Read a YAML file (or start from the defaults) and apply overrides by dotted key.

    Example: load_config("configs/demo.yaml", {"method.name": "reptile", "inner.alpha": 0.05, "beta": 2})
    """
    raw = read_yaml(path) if path is not None else {}
    config = build_config(apply_overrides(raw, overrides or {}))
    return _shortened(config) if os.environ.get(QUICK) else config


def _shortened(config: Config) -> Config:
    """The same run with a handful of steps: enough to see that a command works."""
    finetune = config.finetune
    few = {"steps": min(finetune.steps, 4), "seeds": min(finetune.seeds, 2)}
    steps = {"inner_steps": min(config.inner_steps, 4), "trajectories": min(config.trajectories, 2)}
    return config.model_copy(update={**steps, "finetune": finetune.model_copy(update=few)})


def read_yaml(path: str | Path) -> JsonObject:
    """A file of keys and values; ValueError with one sentence when it is not one."""
    try:
        raw = yaml.safe_load(_find(Path(path)).read_text()) or {}
    except FileNotFoundError:
        raise ValueError(f"there is no config file {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not readable YAML: {one_line(error)}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} must hold keys and values, not a {type(raw).__name__}")
    return raw


def shipped_configs() -> Path:
    """The folder of the configs that come with the program: beside it in a clone, inside it when installed."""
    inside = Path(__file__).parents[1] / "configs"
    return inside if inside.is_dir() else inside.parents[1] / "configs"


def _find(path: Path) -> Path:
    """The file itself, else the one that the program brings under that name. Example: configs/demo.yaml"""
    if path.exists() or path.parts[:1] != ("configs",):
        return path
    return shipped_configs().joinpath(*path.parts[1:])


def build_config(raw: Mapping[str, object]) -> Config:
    """Validate a plain dict; ValueError with one sentence for the first thing that is wrong."""
    try:
        return Config.model_validate(dict(raw))
    except ValidationError as error:
        raise ValueError(explain(error, Config, "config")) from None


def apply_overrides(raw: JsonObject, overrides: Overrides) -> JsonObject:
    """A copy of `raw` with dotted keys replaced; a bare key that only one section has finds its section."""
    result: JsonObject = {key: dict(value) if isinstance(value, dict) else value for key, value in raw.items()}
    if "method" in result:
        result["method"] = method_section(result["method"])
    # The method's name first: its section starts afresh when it changes, for the keys belong to the old method.
    for key in sorted(overrides, key=lambda key: key not in ("method", "method.name")):
        value = overrides[key]
        if key == "method" and isinstance(value, str):
            key = "method.name"
        if key == "method.name" and _section(result, "method", key).get("name", "shifting") != value:
            result["method"] = {}
        *parents, last = (key := _locate(key, result)).split(".")
        target = result
        for part in parents:
            target[part] = _section(target, part, key)
            target = target[part]
        target[last] = value
    return result


def _section(parent: JsonObject, name: str, key: str) -> JsonObject:
    """A copy of what a key is below, empty where there is nothing yet; ValueError where that is something else."""
    section = parent.get(name)
    if section is not None and not isinstance(section, dict):
        raise ValueError(f"{key!r} cannot be set: {name} is {section!r}, and not a section with keys")
    return dict(section or {})


def _locate(key: str, raw: JsonObject) -> str:
    """`beta` -> `method.beta`, when exactly one section has that field and the top level has not."""
    if "." in key or key in Config.model_fields:
        return key
    sections = {**SECTIONS, "method": method_config(raw.get("method")) or MethodConfig}
    owners = [name for name, section in sections.items() if key in section.model_fields]
    return f"{owners[0]}.{key}" if len(owners) == 1 else key


def dump_config(config: Config) -> str:
    """The resolved config as YAML, in the order of the fields."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, default_flow_style=None, width=110)
