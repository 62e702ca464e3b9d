"""Warm starts: a row that begins with what another method has left, within the inner steps of all rows."""

from __future__ import annotations

import pytest

from rayctsl.experiments.image.cells import train_cells, tune_cells
from rayctsl.experiments.image.compute import train, tune
from rayctsl.experiments.image.suite import load_suite
from rayctsl.learning.run import run_local
from rayctsl.learning.run_folder import RunFolder
from rayctsl.registry import open_initialization

METHODS = {"shifting": {"beta": 0.1}, "shifting+warm": {"beta": 0.2}}
SINGLE = {"method": "single", "settings": {"source": "spots", "alpha": 0.05, "beta": 0.05}, "share": 0.25}


@pytest.fixture
def warm(tiny):
    return load_suite(tiny(methods=METHODS, starts={"shifting+warm": SINGLE}, lengths={}, tune={"trajectories": 4}))


def test_start_and_rest_take_what_others_take(warm):
    start, rest = warm.start_config("shifting+warm"), warm.config("shifting+warm", {"beta": 0.2})
    assert warm.start_config("shifting") is None
    assert (start.method.name, start.method.source, start.inner.alpha) == ("single", "spots", 0.05)
    assert (start.total_steps, rest.total_steps) == (
        3 * 4,
        3 * 4,
    )  # one trajectory of three tasks on one; three of each
    assert warm.config("shifting", {}).total_steps == 4 * 4
    assert warm.checkpoint_steps("shifting+warm") == [4]  # after 2 trajectories of all, 1 of its own


def test_it_is_two_runs_one_after_the_other(warm, packs, tmp_path):
    (cell,) = [c for c in train_cells(warm, METHODS, str(packs)) if c.name == "train-shifting+warm-k4-seed1"]
    points = train(cell.arguments, str(tmp_path))["points"]
    assert [(point["step"], point["spent"]["inner"]) for point in points] == [(4, 24), (12, 48)]

    start = warm.start_config("shifting+warm", seed=1, root=str(packs))
    first = run_local(start, RunFolder.open(str(tmp_path / "first"), start))
    rest = warm.config("shifting+warm", METHODS["shifting+warm"], seed=1, root=str(packs))
    model = rest.model.model_copy(update={"weights": f"{first.path}/phi.safetensors"})
    rest = rest.model_copy(update={"model": model})
    second = run_local(rest, RunFolder.open(str(tmp_path / "second"), rest))
    assert open_initialization(str(tmp_path / points[-1]["path"])).card.sha256 == second.card.sha256
    assert train(cell.arguments, str(tmp_path))["points"] == points  # and again


def test_a_trial_begins_warm_too(tiny, packs):
    methods = {"shifting": {"beta": [0.1, 0.2]}, "shifting+warm": {"beta": [0.1, 0.2]}}
    suite = load_suite(tiny(methods=methods, starts={"shifting+warm": {**SINGLE, "share": 0.5}}, lengths={}))
    cold, _, warm, _ = (cell.arguments for cell in tune_cells(suite, str(packs)))
    assert "start" not in cold
    assert tune(warm)["spent"]["inner"] == tune(cold)["spent"]["inner"] == 24
    assert tune(warm)["accuracy"] is not None
    warm["start"]["inner"]["alpha"] = 1e30
    assert "diverged" in tune(warm)


@pytest.mark.parametrize(
    ("starts", "sentence"),
    [
        ({"shifting+wam": {}}, "starts: there is no method 'shifting+wam'; did you mean 'shifting+warm'"),
        ({"shifting+warm": {"method": "singel"}}, "method 'singel' is unknown; did you mean 'single'"),
        ({"shifting+warm": {"share": 1}}, "starts.shifting+warm.share: input should be less than 1"),
        ({"shifting+warm": {"share": 0.1, "method": "mtl"}}, "a share of 0.1 leaves shifting+warm or its start no"),
        ({"shifting+warm": {"settings": {"sorce": "spots"}}}, "config key 'sorce' is unknown"),
    ],
)
def test_wrong_starts(tiny, starts, sentence):
    with pytest.raises(ValueError, match="suite") as caught:
        load_suite(tiny(methods=METHODS, starts=starts, lengths={}))
    assert sentence in str(caught.value)
