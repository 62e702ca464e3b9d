"""What is wrong with a request, in our own words: the validator's are for programmers, and name its types."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

Item = Mapping[str, object]

REASONS: dict[str, str] = {  # by the validator's error type; the fields of its context fill the gaps
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "string_pattern_mismatch": "is not a name that can exist here",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}
KINDS = {  # the beginning of the error's type
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "tuple": "must be a list",
    "list": "must be a list",
    "dict": "must be an object with keys and values",
    "model": "must be an object with keys and values",
}


def title_of(name: str, model: type[BaseModel]) -> str:
    """What the page calls a field. Example: alpha -> Learning rate"""
    field = model.model_fields.get(name)
    return (field.title if field and field.title else name.replace("_", " ")).strip()


def explain(item: Item, model: type[BaseModel]) -> tuple[str, str]:
    """Where the fault is, for programs, and a sentence's end, for people."""
    location = item["loc"] if isinstance(item["loc"], tuple) else ()
    parts = [str(part) for part in location if not isinstance(part, int)]
    kind, context = str(item["type"]), item.get("ctx")
    if kind == "json_invalid":
        return "body", "is not JSON"
    reason = REASONS.get(kind)
    if reason is not None:
        try:
            reason = reason.format_map(dict(context) if isinstance(context, Mapping) else {})
        except KeyError:
            reason = None
    if reason is None:
        reason = next((words for start, words in KINDS.items() if kind.startswith(start)), "is not valid")
    return ".".join(parts), reason


def sentence(where: str, reason: str, model: type[BaseModel]) -> str:
    """Example: "Learning rate must be at most 10.0"."""
    name = where.rpartition(".")[2] if "." in where else where
    if where in ("body", ""):
        return f"The body {reason}."
    title = title_of(name, model)
    return f"{title[:1].upper()}{title[1:]} {reason}."
