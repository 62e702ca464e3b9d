"""The learners' parts of a chunk become one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rayctsl.cluster.packing import Packing
from rayctsl.cluster.parts import Part, join_parts


def part(losses: list[list[float]], inner_steps: list[int]) -> Part:
    steps = np.zeros(len(losses))
    return Part(
        np.array(losses), steps, steps, np.array(inner_steps), np.array([inner_steps[-1], 0, 0]), 3.0, 1.0, 8, 9
    )


def test_every_task_has_its_own_column_wherever_it_was_packed():
    parts = [part([[2.0], [2.5]], [1, 2]), part([[3.0, 1.0], [3.5, 1.5]], [2, 4])]
    packing = Packing(learners=(("b",), ("c", "a")), expected_utilisation=1.0)
    chunk = join_parts(parts, packing, ("a", "b", "c"), seconds=4.0)
    assert chunk.losses.tolist() == [[1.0, 2.0, 3.0], [1.5, 2.5, 3.5]]
    assert chunk.inner_steps.tolist() == [3, 6]
    assert chunk.counts.tolist() == [6, 0, 0]
    assert chunk.facts["utilisation"] == 0.75


def test_the_facts_of_a_chunk_by_hand():
    # Of two learners' 4 seconds each, they compute 3 + 3 and wait 1 + 1; in two steps they send 8 + 8 bytes.
    small, large = part([[2.0], [2.5]], [1, 2]), replace(part([[3.0], [3.5]], [1, 2]), rss_bytes=20)
    packing = Packing(learners=(("a",), ("b",)), expected_utilisation=1.0)
    assert join_parts([small, large], packing, ("a", "b"), seconds=4.0).facts == {
        "learners": 2.0,
        "utilisation": 0.75,
        "stall_share": 0.25,
        "bytes_per_step": 8.0,
        "learner_rss_bytes": 20.0,
    }
