"""The fine-tune recipe as command-line flags, made from the config's fields: a new field is a new flag."""

from __future__ import annotations

import argparse
from typing import Literal, get_args, get_origin

from rayctsl.config import RecipeConfig

Flags = argparse.ArgumentParser | argparse._ArgumentGroup
Value = str | int | float | bool | tuple[float, ...]


def add_recipe_flags(parser: Flags, kind: type[RecipeConfig] = RecipeConfig) -> None:
    """`--steps`, `--train-size`, … each with its field's description; absent ones are left to who is asked."""
    for name, field in kind.model_fields.items():
        flag, text = f"--{name.replace('_', '-')}", (field.description or "").replace("%", "%%")
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if kind is not None]
        if get_origin(field.annotation) is Literal:
            parser.add_argument(flag, choices=get_args(field.annotation), help=text)
        elif field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif get_origin(field.annotation) is tuple:
            parser.add_argument(flag, type=_numbers, metavar="A,B", help=text)
        else:
            whole = int in kinds or any(int in get_args(kind) for kind in kinds)
            parser.add_argument(flag, type=int if whole else float, metavar="N", help=text)


def given_recipe(options: argparse.Namespace, kind: type[RecipeConfig] = RecipeConfig) -> dict[str, Value]:
    """The fields that the command line names."""
    found = {name: getattr(options, name) for name in kind.model_fields}
    return {name: value for name, value in found.items() if value is not None}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
