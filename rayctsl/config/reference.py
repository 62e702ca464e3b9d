"""Every config key with its type, default and meaning, from the config's own fields: for people."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rayctsl.config.methods import METHOD_CONFIGS, MethodConfig
from rayctsl.config.run import Config

PAPER = {"data.flip": "always"}  # where the paper's value is not the default


@dataclass(frozen=True)
class Key:
    """One config key. Example: Key("inner.alpha", "number", "0.01", "Inner learning rate.", "0.01")"""

    name: str
    kind: str
    default: str
    meaning: str
    paper: str
    section: str


def config_keys() -> list[Key]:
    """All keys in the order of the config; a method's own keys come after those of all methods."""
    return list(_keys(Config, ""))


def _keys(kind: type[BaseModel], prefix: str) -> Iterator[Key]:
    sections = list[tuple[str, type[BaseModel]]]()
    for name, field in kind.model_fields.items():
        inside = _section(field.annotation)
        if name == "method":
            sections.append((name, MethodConfig))
        elif inside is not None:
            sections.append((name, inside))
        else:
            yield _key(prefix, name, field)
    for name, inside in sections:
        yield from _keys(inside, f"{name}.") if inside is not MethodConfig else _method_keys()


def _method_keys() -> Iterator[Key]:
    yield Key("method.name", "one of the methods", "shifting", f"{', '.join(METHOD_CONFIGS)}.", "shifting", "method")
    betas = "; ".join(
        f"{name} {', '.join(f'{beta:g} (K {steps})' for steps, beta in METHOD_CONFIGS[name].paper_betas.items())}"
        for name in ("shifting", "reptile", "fomaml", "leap")
    )
    shared = {name: field for name, field in MethodConfig.model_fields.items() if name != "name"}
    for name, field in shared.items():
        key = _key("method.", name, field)
        yield Key(*(key.name, key.kind, key.default, key.meaning), betas if name == "beta" else key.paper, "method")
    for method, kind in METHOD_CONFIGS.items():
        own = {name: field for name, field in kind.model_fields.items() if name not in ("name", *shared)}
        for name, field in own.items():
            key = _key("method.", name, field)
            yield Key(key.name, key.kind, key.default, key.meaning, key.paper, f"method: {method}")


def _key(prefix: str, name: str, field: FieldInfo) -> Key:
    full, default = prefix + name, _default(field)
    meaning = re.sub(r"\s+", " ", field.description or "")
    section = prefix.rstrip(".") or "top level"
    paper = PAPER.get(full, "" if section in ("topology", "validation") or default == "absent" else default)
    return Key(full, _type(field.annotation), default, meaning, paper, section)


def _section(annotation: object) -> type[BaseModel] | None:
    found = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
    return found[0] if len(found) == 1 else None


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _type(annotation: object) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inside[0])
    if origin is Literal:
        return " or ".join(map(str, inside))
    if origin in (Union, types.UnionType):
        return " or ".join(_type(a) for a in inside if a is not type(None))
    if origin is tuple:
        return "list"
    if origin is dict:
        return "names and numbers"
    words = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return words.get(annotation, "section") if isinstance(annotation, type) else "section"


def as_text(keys: list[Key]) -> str:
    """For a terminal: a key, its type and default, and its meaning below."""
    lines = []
    for key in keys:
        paper = f"; the paper: {key.paper}" if key.paper and key.paper != key.default else ""
        of = f" ({key.section})" if key.section.startswith("method: ") else ""
        lines.append(f"{key.name}{of}  [{key.kind}; default {key.default}{paper}]\n    {key.meaning}")
    return "\n".join(lines)


def as_markdown(keys: list[Key]) -> str:
    """The whole reference, `docs/CONFIG.md`."""
    lines = [HEAD]
    for section in dict.fromkeys(key.section for key in keys):
        lines += ["", f"## {section}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for key in (key for key in keys if key.section == section):
            paper = f" The paper: {key.paper}." if key.paper and key.paper != key.default else ""
            cells = [f"`{key.name}`", key.kind, f"`{key.default}`", key.meaning + paper]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


HEAD = """# Config keys

Made by `rayctsl config --markdown`. Every default is the value of the paper's image experiment unless the last column
says otherwise; `topology` and what the paper knows nothing of have defaults of their own. Set a key in a YAML file, or
with `--set key=value`; a key that only one section has needs no section (`--set alpha=0.05`)."""
