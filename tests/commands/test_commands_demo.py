"""What the demo makes of its fine-tunings."""

from __future__ import annotations

import pytest

from rayctsl.commands.demo import summarise


def test_the_means_interval_is_over_seeds():
    """Of the mean over targets, seed by seed: 2, 3 and 4 here, so 3 with t(2) / sqrt(3) times a deviation of 1."""
    found = summarise({"easy": [11.0, 12.0, 13.0], "hard": [-7.0, -6.0, -5.0]})
    width = 4.302653 / 3**0.5
    assert list(found) == ["easy", "hard", "mean"]
    assert found["easy"] == pytest.approx((12.0, width))
    assert found["mean"] == pytest.approx((3.0, width))
