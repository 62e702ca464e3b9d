"""What a running run shows to Prometheus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayctsl.cluster import live
from rayctsl.learning.engine import Chunk


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str | None], float]:
    """What the gauges show, by name and task."""
    values: dict[tuple[str, str | None], float] = {}

    class Gauge:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...] = ()):
            self.name = name

        def set(self, value: float, tags: dict[str, Any] | None = None) -> None:
            values[self.name, (tags or {}).get("task")] = value

    monkeypatch.setattr(live, "Gauge", Gauge)
    return values


def test_the_gauges_show_the_last_step_of_a_chunk(shown):
    view = live.LiveView(("a", "b"))
    losses = np.array([[9.0, 9.0], [5.0, 5.0], [1.5, np.nan]])
    facts = {"utilisation": 0.9, "stall_share": 0.05, "bytes_per_step": 4e6}
    view.show(Chunk(losses, np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(2), 0.5, facts), step=42)
    view.count_faults(2)
    assert shown == {
        ("rayctsl_inner_step", None): 42,
        ("rayctsl_task_loss", "a"): 1.5,  # b has no loss that could be drawn
        ("rayctsl_steps_per_second", None): 6.0,
        ("rayctsl_utilisation", None): 0.9,
        ("rayctsl_stall_share", None): 0.05,
        ("rayctsl_bytes_per_step", None): 4e6,
        ("rayctsl_faults", None): 2,
    }
