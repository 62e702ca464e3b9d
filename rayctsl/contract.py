"""What crosses a process or a disk: frozen types with a name and a version, read back through one function.

A `Contract` is written as JSON with its `version`. `read_contract` refuses what a newer rayctsl wrote, brings what an
older one wrote up to date (`upgrade`), and explains anything else in one sentence.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed_version
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rayctsl.words import one_line

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"  # what can be written
JsonObject = dict[str, Any]  # what was read of JSON or YAML, not validated yet


class Contract(BaseModel):
    """Base of every versioned type. A subclass sets CURRENT, and `upgrade` when it has had other forms."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    CURRENT: ClassVar[int] = 1

    version: int = 0
    """The form of this document; 0 stands for the current one when it is made."""

    def model_post_init(self, context: object) -> None:
        if not self.version:
            object.__setattr__(self, "version", type(self).CURRENT)

    @classmethod
    def upgrade(cls, raw: JsonObject) -> JsonObject:
        """A document of an earlier version, in the current form."""
        return raw

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json(), indent=2, allow_nan=False).encode()

    def changed(self, **fields: object) -> Self:
        """A validated copy with other values."""
        return type(self).model_validate({**self.model_dump(), **fields})


Kind = TypeVar("Kind", bound=Contract)


def read_contract(kind: type[Kind], data: bytes | Mapping[str, object], what: str) -> Kind:
    """A document of any version up to the current one; ValueError says in one sentence what is wrong with `what`."""
    raw = parse_json(data, what)
    found = raw.get("version", 1)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{what} has the version {found!r}, which is not a number from 1 on")
    if found > kind.CURRENT:
        raise ValueError(
            f"{what} was written by a newer rayctsl (version {found}, this one reads up to {kind.CURRENT}): upgrade"
        )
    try:
        raw = kind.upgrade(raw) if found < kind.CURRENT else raw
        return kind.model_validate({**raw, "version": kind.CURRENT})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{what} is damaged: {key}: {message[0].lower()}{message[1:]}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{what} is damaged: {type(error).__name__} {error}") from None


def parse_json(data: bytes | Mapping[str, object], what: str) -> JsonObject:
    """Keys and values, without NaN; ValueError says what else it is."""
    if isinstance(data, Mapping):
        return dict(data)
    try:
        raw = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is damaged: it is not JSON ({one_line(error, 100)})") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is damaged: it holds no keys and values")
    return raw


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def package_versions() -> dict[str, str]:
    """What a result was computed with. Example: {"python": "3.11.7", "rayctsl": "0.1.0", "torch": "2.13.0", …}"""
    packages = {name: installed_version(name) for name in ("rayctsl", "torch", "ray", "numpy")}
    return {"python": platform.python_version(), **packages}
