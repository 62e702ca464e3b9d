"""The sweep file: what is drawn from it, and the one line for what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayctsl.commands.tune import main
from rayctsl.sweeps.config import build_sweep, draw_trials, load_sweep, trial_config, trial_id
from tests.sweeps.conftest import sweep_keys

SWEEPS = Path(__file__).parents[2] / "configs" / "sweeps"


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sweeps_that_come_with_the_program_are_valid(path):
    sweep = load_sweep(path)
    configs = [trial_config(sweep, overrides) for overrides in draw_trials(sweep)]
    assert len({trial_id(c, o) for c, o in zip(configs, draw_trials(sweep), strict=True)}) == len(configs)
    assert {config.inner_steps * config.trajectories for config in configs} == {sweep.budget}
    assert sweep.steps_per_report == sweep.report_every, "whole trajectories of every K"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"search": {}}, "search is empty"),
        ({"serch": {"beta": {"grid": [1]}}}, "sweep key 'serch' is unknown; did you mean 'search'?"),
        ({"search": {"beta": {"gird": [1]}}}, "did you mean 'grid'?"),
        ({"search": {"beta": {"grid": [1], "choice": [1]}}}, "exactly one of grid, choice or loguniform"),
        ({"search": {"beta": {"loguniform": [1, 0.1]}}}, "a lower and a higher bound"),
        ({"search": {"method.bta": {"grid": [1]}}}, "config key 'method.bta' is unknown; did you mean 'beta'?"),
        ({"search": {"method": {"grid": ["reptil"]}}}, "did you mean 'reptile'?"),
        ({"search": {"beta": {"grid": [-1]}}}, "method.beta"),
        ({"search": {"inner_steps": {"grid": [3]}}}, "budget of 8 inner steps is not a multiple of inner_steps 3"),
        ({"search": {"beta": {"grid": [1]}}, "trials": 2}, "would repeat the same grid"),
        ({"search": {"trajectories": {"grid": [1]}}}, "with a budget the trajectories follow from inner_steps"),
        ({"search": {"beta": {"grid": [1]}}, "validation": {"stps": 1}}, "did you mean 'steps'?"),
        ({"search": {"beta": {"grid": [1]}}, "search_algorithm": "optuna"}, "optuna needs a loguniform dimension"),
        ({"search": {"beta": {"grid": [1]}}, "base": "nowhere.yaml"}, "there is no config file"),
    ],
)
def test_a_wrong_file_is_one_line_and_writes_nothing(tmp_path, capsys, write_sweep, wrong, sentence):
    run_dir = tmp_path / "run"
    keys = {"search": None, **wrong}
    path = write_sweep(**{key: value for key, value in keys.items() if value is not None})
    assert main(["--config", path, "--run-dir", str(run_dir)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not run_dir.exists()


def test_other_bad_input(tmp_path, capsys, sweep_tasks, write_sweep):
    path = write_sweep(search={"beta": {"grid": [1]}})
    assert main([]) == 2
    assert main(["--config", path, "--resume", str(tmp_path)]) == 2
    assert main(["--resume", str(tmp_path)]) == 2
    assert "not the folder of a sweep" in capsys.readouterr().err
    assert main(["--config", path, "--run-dir", str(tmp_path)]) == 2
    assert "already used" in capsys.readouterr().err


def test_grids_are_crossed_and_draws_are_a_function_of_the_seed():
    search = {
        "method": {"grid": ["shifting", "reptile"]},
        "beta": {"loguniform": ["1e-3", 10]},
        "inner_steps": {"choice": [2, 4]},
    }
    sweep = build_sweep(sweep_keys(search=search, trials=30))
    trials = draw_trials(sweep)
    assert trials == draw_trials(sweep)
    assert trials != draw_trials(build_sweep(sweep_keys(search=search, trials=30, seed=1)))
    assert len(trials) == 60
    betas = np.array([trial["beta"] for trial in trials])
    assert betas.min() >= 1e-3
    assert betas.max() <= 10
    assert 0.3 < (betas < 0.1).mean() < 0.7, "half of a log-uniform draw lies below the geometric middle"


def test_without_a_budget_a_trial_is_as_long_as_the_base_and_is_validated_five_times():
    sweep = build_sweep(
        {"base": {"inner_steps": 10, "trajectories": 30}, "search": {"inner_steps": {"grid": [10, 20]}}}
    )
    assert (sweep.steps_per_trial, sweep.steps_per_report) == (300, 60)
    assert [trial_config(sweep, trial).trajectories for trial in draw_trials(sweep)] == [30, 15]


@pytest.mark.parametrize(("report_every", "every"), [(None, 200), (100, 100), (101, 200), (550, 600)])
def test_trials_are_validated_at_equal_steps_whatever_their_inner_steps(report_every, every):
    search = {"inner_steps": {"grid": [10, 100]}}
    assert build_sweep({"search": search, "budget": 600, "report_every": report_every}).steps_per_report == every
    alone = {"base": {"inner_steps": 20}, "search": {"beta": {"grid": [1]}}, "budget": 600}
    assert build_sweep({**alone, "report_every": 90}).steps_per_report == 100


def test_optuna_trials_are_validated_where_trajectories_of_all_that_it_may_suggest_end():
    search = {"beta": {"loguniform": [0.1, 1]}, "inner_steps": {"choice": [4, 6]}}
    sweep = build_sweep({"search": search, "search_algorithm": "optuna", "budget": 60, "report_every": 8})
    assert sweep.steps_per_report == 12


def test_asha_is_refused_where_trajectories_of_all_k_end_together_too_late():
    search = {"inner_steps": {"grid": [7, 10]}, "trajectories": {"grid": [4, 5]}}
    keys = {"base": {"inner_steps": 10, "trajectories": 5}, "search": search}
    with pytest.raises(ValueError, match="inner_steps 7, 10 end together after 70 at the earliest, beyond the 50"):
        build_sweep({**keys, "scheduler": "asha"})
    assert build_sweep(keys).steps_per_report == 10


def test_what_is_drawn_twice_is_one_trial():
    """Two of one name would write into each other's folder."""
    sweep = build_sweep(sweep_keys(search={"beta": {"choice": [0.1, 0.2]}}, trials=30))
    assert sorted(trial["beta"] for trial in draw_trials(sweep)) == [0.1, 0.2]


def test_a_base_without_beta_takes_the_papers_for_each_k():
    sweep = build_sweep({"search": {"inner_steps": {"grid": [10, 100, 1000]}}, "budget": 1000})
    assert [trial_config(sweep, trial).method.beta for trial in draw_trials(sweep)] == [1.0, 0.1, 0.01]


def test_a_trial_is_the_same_in_whatever_order_its_keys_come():
    sweep = build_sweep(sweep_keys(search={"beta": {"grid": [0.1]}, "inner_steps": {"grid": [4]}}))
    names = {
        trial_id(trial_config(sweep, o), o) for o in ({"beta": 0.1, "inner_steps": 4}, {"inner_steps": 4, "beta": 0.1})
    }
    assert len(names) == 1
