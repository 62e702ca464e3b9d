"""What a service freed is not kept by its process."""

from __future__ import annotations

import subprocess

import pytest

PROGRAM = """
from serve.bench.instance import resident
from serve.memory import return_freed_memory
import os
if {told}:
    assert return_freed_memory()
large, small, before = [], [], resident(os.getpid())
for _ in range(3):  # the C library learns from what is freed
    for _ in range(400):
        large.append(bytearray(300_000))
        small.append(bytearray(1_000))
    large.clear()
print(resident(os.getpid()) - before)
"""


@pytest.mark.parametrize(("told", "least", "most"), [(True, -1, 10), (False, 60, 1000)])
def test_freed_pieces_go_back_although_small_ones_between_them_stay(
    python: str, told: bool, least: float, most: float
) -> None:
    done = subprocess.run([python, "-c", PROGRAM.format(told=told)], capture_output=True, text=True, check=True)
    assert least < float(done.stdout) < most
