"""Seeded mistakes: each is made in a copy of the rendered manifests, and the rule that is there for it says so."""

from __future__ import annotations

import copy

import pytest
from k8s_checks.manifests import world
from k8s_checks.rules import RULES
from k8s_checks.seeds import Mistake
from k8s_checks.seeds_misplaced import MISPLACED
from k8s_checks.seeds_reported import REPORTED


@pytest.mark.parametrize("mistake", [*REPORTED, *MISPLACED], ids=lambda mistake: mistake.what.replace(" ", "-"))
def test_a_mistake_is_seen(rendered: None, mistake: Mistake) -> None:
    objects = copy.deepcopy(world(mistake.overlay))
    mistake.make(objects)
    sentences = list(RULES[mistake.rule](objects))
    assert any(mistake.says in sentence for sentence in sentences), sentences


def test_the_table_is_as_long_as_promised() -> None:
    assert len({mistake.what for mistake in REPORTED}) >= 20
    assert len({mistake.what for mistake in MISPLACED}) >= 30
