"""Sentences for the user: what was probably meant, an error in one line, what is wrong with a document."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import get_args

from pydantic import BaseModel, ValidationError


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)


def suggest(word: str, known: Iterable[str]) -> str:
    """'; did you mean X?' when something known is close, else the choices when they are few."""
    names = sorted(known)
    if close := nearest(word, names):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 20 else ""


def one_line(error: object, limit: int | None = None) -> str:
    """What an error says, without line breaks."""
    return " ".join(str(error).split())[:limit] or type(error).__name__


def explain(error: ValidationError, kind: type[BaseModel], what: str) -> str:
    """The first thing that is wrong with a document, as a sentence.

    Example: "config key 'inner.alpa' is unknown; did you mean 'alpha'?"
    """
    # A misspelt key may also leave a needed one missing: the misspelling is what to say.
    first = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    key, section = _place(first["loc"], kind)
    if first["type"] == "extra_forbidden":
        word, known = str(first["loc"][-1]), set(section.model_fields)
        if section is kind and not nearest(word, known):  # a bare key may mean a key of any section
            known |= {name for part in _sections(kind) for name in part.model_fields}
        return f"{what} key {key!r} is unknown" + suggest(word, known)
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        return f"{key} {context['tag']!r} is unknown" + suggest(context["tag"], _tags(context["expected_tags"]))
    if first["type"] == "missing":
        return f"the {what} has no {key!r}"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return message
    shown = repr(first["input"])
    return f"{key}: {message[0].lower()}{message[1:]}" + (f" (got {shown})" if len(shown) < 60 else "")


def _tags(expected: str) -> list[str]:
    """The names in pydantic's "'shifting', 'reptile'"."""
    return [tag.strip(" '") for tag in expected.split(",")]


def _place(location: tuple[int | str, ...], kind: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The dotted key of an error, and the section that it belongs to; the tag of a union is no part of a key."""
    section, choices, parts = kind, list[type[BaseModel]](), list[str]()
    for part in map(str, location):
        tagged = [choice for choice in choices if _tag(choice) == part]
        choices = []
        if tagged:
            section = tagged[0]
            continue
        parts.append(part)
        if part in section.model_fields:
            inside = list(_models(section.model_fields[part].annotation))
            if len(inside) == 1:
                section = inside[0]
            choices = inside if len(inside) > 1 else []
    return ".".join(parts), section


def _tag(kind: type[BaseModel]) -> str | None:
    return str(kind.model_fields["name"].default) if "name" in kind.model_fields else None


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _sections(kind: type[BaseModel]) -> list[type[BaseModel]]:
    """The sections directly below a document."""
    return [model for field in kind.model_fields.values() for model in _models(field.annotation)]
