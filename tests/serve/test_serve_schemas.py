"""What may be asked of the service, and what is made of it."""

from __future__ import annotations

import pytest

from serve.schemas import MAX_POINTS, FinetuneRequest


@pytest.mark.parametrize("steps", [1, 199, 200, 201, 399, 400, 1001])
def test_a_curve_has_no_more_points_than_are_drawn(steps: int) -> None:
    every = FinetuneRequest(dataset="stripes", steps=steps, evaluate_every=1).recipe(num_test=10).evaluate_every
    assert every is not None
    assert -(-steps // every) <= MAX_POINTS
    assert every == 1 or -(-steps // (every - 1)) > MAX_POINTS, "as many as can be drawn"
