"""The proofs judge themselves rightly: what is warming up is no leak, and what leaks is."""

from __future__ import annotations

import pytest

from serve.bench.fuzz import growth


def memory(seconds: int, leak: float) -> list[tuple[float, float]]:
    """Twice as much after the warm-up, then so many megabytes more a minute."""
    warm = min(300.0, seconds / 4)
    return [(float(at), 100 + 100 * min(1.0, at / warm) + leak * max(0.0, at - warm) / 60) for at in range(seconds)]


@pytest.mark.parametrize("minutes", [2, 20, 60])
def test_memory_counts_from_the_end_of_the_warm_up(minutes: int) -> None:
    assert growth(memory(60 * minutes, leak=0.0)) == pytest.approx(0.0, abs=0.01)
    assert growth(memory(60 * minutes, leak=40 / minutes)) > 0.1
