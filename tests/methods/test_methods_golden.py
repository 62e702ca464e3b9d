"""Every method against its own short golden trajectory (tests/golden/make_golden.py says how to renew them)."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from rayctsl.methods import METHODS

HERE = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(HERE / "make_golden.py"))
GOLDEN = json.loads((HERE / "methods.json").read_text())


def test_every_method_has_a_golden_trajectory():
    assert MAKER["CASES"].keys() == GOLDEN.keys()
    assert GOLDEN.keys() >= METHODS.keys()


def test_golden_trajectories_are_all_different():
    ends = {tuple(np.round(trajectory[-1], 6)) for trajectory in GOLDEN.values()}
    assert len(ends) == len(GOLDEN) - 1  # K is below fomaml_pp's `every`, which makes it fomaml


@pytest.mark.parametrize("case", list(GOLDEN))
def test_golden_trajectory(case):
    found = np.array(MAKER["trajectory"](MAKER["CASES"][case]))
    np.testing.assert_allclose(found, GOLDEN[case], rtol=0, atol=1e-12)
