"""Every small mistake that could be made in a file: what one slip of the hand would leave, and still compiles.

Example: `if step >= count and not done:` may become `if step > count …`, `… or not done`, `… and done` and more.
What only people read is left alone: docstrings, messages, asserts, flags' help, annotations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "floor": "ceil", "ceil": "floor"}
FOR_PEOPLE = {"add_argument", "print", "info", "warning", "warn", "Field", "Query"}
SHOWN = {"help", "description", "title", "label", "color", "fontsize", "metavar", "stacklevel", "encoding", "name"}


@dataclass(frozen=True)
class Mistake:
    """Bytes `start` to `stop` of a file are written as `new`."""

    line: int
    kind: str
    start: int
    stop: int
    new: str

    def made_in(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.stop :]).decode()

    def told(self, text: str) -> str:
        old = text.encode()[self.start : self.stop].decode()
        return " ".join(f"{old} -> {self.new or 'nothing'}".split())


def mistakes_in(path: Path) -> list[Mistake]:
    source = Source(path.read_text())
    return [mistake for node in source.nodes(source.tree) for mistake in source.mistakes(node)]


def changes_something(text: str, mistake: Mistake) -> bool:
    """Whether it compiles, and says something else."""
    try:
        return ast.dump(ast.parse(mistake.made_in(text))) != ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return False


class Source:
    """A file as text and tree, which know each other's places."""

    def __init__(self, text: str):
        self.raw, self.tree = text.encode(), ast.parse(text)
        self.lines = [0, *accumulate(len(line) + 1 for line in self.raw.split(b"\n"))]

    def start(self, node: ast.AST) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def stop(self, node: ast.AST) -> int:
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        return self.raw[self.start(node) : self.stop(node)].decode()

    def nodes(self, node: ast.AST) -> Iterator[ast.AST]:
        """All below, but what only people or type checkers read."""
        match node:
            case ast.JoinedStr() | ast.Assert() | ast.Raise() | ast.arg():
                return
            case ast.Call() if _name(node) in FOR_PEOPLE:
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
        yield node
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.nodes(child)

    def mistakes(self, node: ast.AST) -> Iterator[Mistake]:
        """Those that are made at this very node."""
        match node:
            case ast.Compare(ops=[operator], left=left, comparators=[right]):
                yield from self._other(node, operator, left, right)
            case ast.BinOp(left=left, right=right, op=operator) if not (_is_text(left) or _is_text(right)):
                yield from self._other(node, operator, left, right)
            case ast.BoolOp(values=[first, second, *rest], op=operator):
                yield from self._other(node, operator, first, second)
                yield self._written(node, "half a condition", self.text(first))
                yield self._written(node, "half a condition", self.text(([second, *rest])[-1]))
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield self._written(node, "sign", f"({self.text(operand)})")
            case ast.If(test=test):
                yield self._written(test, "condition", f"not ({self.text(test)})")
            case ast.IfExp(body=body, orelse=other):
                yield self._written(node, "one way", f"({self.text(body)})")
                yield self._written(node, "one way", f"({self.text(other)})")
            case ast.Constant(value=bool(value)):
                yield self._written(node, "constant", str(not value))
            case ast.Constant(value=int(value)):
                yield self._written(node, "constant", str(value + 1))
            case ast.Constant(value=float(value)):
                yield self._written(node, "constant", repr(value * 2 or 1.0))
            case ast.AugAssign(op=ast.Add() | ast.Sub(), target=target, value=value):
                yield Mistake(node.lineno, "sum", self.stop(target), self.start(value), " = ")
            case ast.Assign(targets=[ast.Attribute()]) | ast.Expr(value=ast.Call() | ast.Await()):
                if not _is_for_people(node):
                    yield self._written(node, "statement", "pass")
            case ast.Break() | ast.Continue():
                yield self._written(node, "statement", "pass")
            case ast.comprehension(ifs=[condition, *_]):
                yield self._written(condition, "filter", "True")
            case ast.Slice():
                yield from (self._written(bound, "slice", "") for bound in (node.lower, node.upper) if bound)
            case ast.Call():
                yield from self._calls(node)

    def _calls(self, node: ast.Call) -> Iterator[Mistake]:
        if (name := _name(node)) in FUNCTIONS:
            stop = self.stop(node.func)
            yield Mistake(node.lineno, "function", stop - len(name), stop, FUNCTIONS[name])
        if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args):
            first, second = node.args[:2]
            between = self.raw[self.stop(first) : self.start(second)].decode()
            swapped = f"{self.text(second)}{between}{self.text(first)}"
            yield Mistake(node.lineno, "order", self.start(first), self.stop(second), swapped)
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in SHOWN:
                start, stop = self.start(keyword), self.stop(keyword)
                comma = re.match(rb"\s*,\s*", self.raw[stop:])
                before = re.search(rb",\s*$", self.raw[:start])
                if comma or not before:
                    yield Mistake(keyword.lineno, "argument", start, stop + (comma.end() if comma else 0), "")
                else:
                    yield Mistake(keyword.lineno, "argument", before.start(), stop, "")

    def _written(self, node: ast.AST, kind: str, new: str) -> Mistake:
        return Mistake(node.lineno, kind, self.start(node), self.stop(node), new)

    def _other(self, node: ast.AST, operator: ast.AST, left: ast.AST, right: ast.AST) -> Iterator[Mistake]:
        if type(operator) in OPERATORS:
            old, new = OPERATORS[type(operator)]
            start, stop = self.stop(left), self.start(right)
            between = self.raw[start:stop].decode()
            if between.count(old) == 1:
                yield Mistake(node.lineno, "operator", start, stop, between.replace(old, new))


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_for_people(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and _name(each) in FOR_PEOPLE for each in ast.walk(node))
