"""The loop against another program: trajectories on the synthetic surfaces, from numpy and hand-written gradients.

tests/golden/surfaces.json keeps shifting at full length, and the first meta-updates of Reptile and accurate.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rayctsl.config import build_config
from rayctsl.experiments.synthetic.surfaces import Environment
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.problem import Problem

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "surfaces.json").read_text())


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=lambda run: run["method"])
def test_reference_trajectories(run):
    settings = GOLDEN["settings"]
    environment = Environment(**{name: np.array(value) for name, value in GOLDEN["environment"].items()})
    tasks = environment.tasks(np.array(run["starts"]))  # all starts at once: they do not know of each other
    config = build_config(
        {
            "inner_steps": settings["inner_steps"],
            "data": {"tasks": list(tasks)},
            "method": {"name": run["method"], "beta": settings["beta"]},
            "inner": {
                "optimizer": "momentum",
                "momentum": settings["momentum"],
                "alpha": settings["alpha"],
                "weight_decay": 0.0,
            },
            "reset": {"optimizer": "reset"},
        }
    )
    engine = LocalEngine(Problem.of(config, tasks=tasks))
    steps_per_update = settings["inner_steps"] if run["method"] == "reptile" else 1
    phis, done = [], 0
    for update in run["meta_updates"]:
        target = update * steps_per_update
        if target > done:
            engine.run(done, target)
        done = target
        phis.append(engine.meta.phi.numpy().reshape(-1, 2).copy())
    np.testing.assert_allclose(np.stack(phis, axis=1), run["trajectories"], rtol=0, atol=1e-8)
