"""Every rule of the operator that is replayed says which line of its source it comes from."""

from __future__ import annotations

import ast
import inspect

from k8s_checks import operator, operator_rules
from k8s_checks.sources import REFUSED, REPLAYED

OURS = {"millis"}  # arithmetic, no rule


def test_every_replayed_rule_has_a_source_line() -> None:
    functions = {
        name
        for name, found in inspect.getmembers(operator, inspect.isfunction)
        if found.__module__ == operator.__name__ and not name.startswith("_")
    }
    assert functions - OURS == set(REPLAYED)


def test_every_refusal_has_a_source_line() -> None:
    sentences = set()
    for node in ast.walk(ast.parse(inspect.getsource(operator_rules))):
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant):
            sentences.add(node.value.value)
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr):
            sentences.update(part.value for part in node.value.values if isinstance(part, ast.Constant))
    assert sentences == set(REFUSED)


def test_a_source_is_a_file_a_line_and_a_commit() -> None:
    for sources in [*REPLAYED.values(), *REFUSED.values()]:
        assert sources
        for path, line, commit in sources:
            assert path.endswith(".go")
            assert line > 0
            assert len(commit) == 40
