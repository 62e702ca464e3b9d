"""Every overlay, with its runs, keeps every rule."""

from __future__ import annotations

from typing import Any

import pytest
from k8s_checks.rules import RULES


@pytest.mark.parametrize("name", RULES)
def test_every_overlay_keeps_the_rule(objects: list[dict[str, Any]], name: str) -> None:
    assert list(RULES[name](objects)) == []


def test_there_are_as_many_rules_as_there_were() -> None:
    assert len(RULES) >= 40
