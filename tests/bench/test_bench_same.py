"""`bench same`: engines with the actors of the one before, compared with one process."""

from __future__ import annotations

import pytest

from rayctsl.bench import same
from rayctsl.learning.engine import LocalEngine

METHODS = ("shifting", "reptile")


@pytest.mark.ray
def test_every_transport_is_compared_method_by_method(kept_actors) -> None:
    expected = {method: same.digest(same.take_steps(LocalEngine(same.problem(method)))) for method in METHODS}
    rows = list(same.compare(2, {**expected, "reptile": "another"}))
    assert [(row["way"], row["learners"], row["methods"]) for row in rows] == [(way, 2, 2) for way in same.TRANSPORTS]
    assert [row["different"] for row in rows] == [["reptile"]] * 3
