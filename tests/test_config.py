"""The config: every shipped file loads, wrong input is one sentence, one override path."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rayctsl.config import (
    METHOD_CONFIGS,
    Config,
    ReptileConfig,
    apply_overrides,
    build_config,
    dump_config,
    load_config,
)
from rayctsl.methods import METHODS

CONFIGS = Path(__file__).parent.parent / "configs"
RUNS = [
    CONFIGS / "demo.yaml",
    *sorted((CONFIGS / "paper").rglob("*.yaml")),
]  # sweeps and suites have tests of their own


@pytest.mark.parametrize("path", RUNS, ids=[str(path.relative_to(CONFIGS)) for path in RUNS])
def test_shipped_configs_load_and_survive_a_round_trip(path):
    config = load_config(path)
    assert build_config(yaml.safe_load(dump_config(config))) == config


def test_every_method_has_a_config_class_and_a_file_for_the_image_experiment():
    assert set(METHOD_CONFIGS) == set(METHODS)
    assert {path.stem for path in (CONFIGS / "paper" / "image").glob("*.yaml")} == set(METHODS)
    for path in (CONFIGS / "paper" / "image").glob("*.yaml"):
        assert load_config(path).method.name == path.stem


def test_defaults_are_the_paper_image_experiment():
    config = Config()
    assert (config.inner_steps, config.trajectories, config.method.name) == (1000, 200, "shifting")
    assert (config.inner.alpha, config.inner.momentum, config.inner.weight_decay) == (0.01, 0.9, 5e-4)
    assert (config.finetune.steps, config.finetune.alpha, config.finetune.optimizer) == (1000, 0.1, "nesterov")
    assert len(config.data.tasks) == 8


@pytest.mark.parametrize(
    ("method", "steps", "beta"),
    [("shifting", 1000, 0.01), ("shifting", 100, 0.1), ("shifting", 10, 1.0), ("reptile", 1000, 1.0),
     ("reptile", 80, 2.0), ("shifting", 40, 0.1),  # by ratio: a difference would say 10
     ("fomaml", 10, 0.5), ("leap", 100, 0.1)],
)  # fmt: skip
def test_beta_follows_the_paper_table(method, steps, beta):
    assert load_config(None, {"method": method, "inner_steps": steps}).method.beta == beta


@pytest.mark.parametrize("steps", [1e2, "100", True])
def test_beta_follows_the_paper_however_the_number_is_written(steps):
    config = load_config(None, {"inner_steps": steps})
    assert config.method.beta == load_config(None, {"inner_steps": int(steps)}).method.beta is not None


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"method": "reptil"}, "method 'reptil' is unknown; did you mean 'reptile'?"),
        ({"inner.alpa": 1}, "config key 'inner.alpa' is unknown; did you mean 'alpha'?"),
        ({"method.shift_dela": 1}, "config key 'method.shift_dela' is unknown; did you mean 'shift_delay'?"),
        ({"method": "leap", "stabiliser": 1}, "config key 'stabiliser' is unknown; did you mean 'stabilizer'?"),
        ({"method.name": "leap", "method.stabiliser": 1}, "'method.stabiliser' is unknown; did you mean 'stabilizer'?"),
        ({"bta": 1}, "config key 'bta' is unknown; did you mean 'beta'?"),
        ({"beta": -1}, "method.beta: input should be greater than or equal to 0 (got -1)"),
        ({"beta": float("nan")}, "method.beta: input should be a finite number (got nan)"),
        ({"inner_steps": 0}, "inner_steps: input should be greater than or equal to 1 (got 0)"),
        ({"data.tasks": []}, "data.tasks is empty: name at least one dataset"),
        ({"data.tasks": ["a", "a"]}, "data.tasks names a dataset twice"),
        ({"method": "single", "method.source": "x"}, "method.source 'x' is not one of data.tasks"),
        ({"data": 3}, "data: input should be a valid dictionary or instance of DataConfig (got 3)"),
        ({"method": 3}, "method: input should be a valid dictionary or object to extract fields from (got 3)"),
        ({"inner": 5, "inner.alpha": 0.1}, "'inner.alpha' cannot be set: inner is 5, and not a section with keys"),
        ({"method": 3, "beta": 1}, "'method.beta' cannot be set: method is 3, and not a section with keys"),
    ],
)
def test_wrong_input_is_one_sentence(overrides, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence) + "$"):
        load_config(None, overrides)


def test_unreadable_files(tmp_path):
    with pytest.raises(ValueError, match="there is no config file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1, ")
    with pytest.raises(ValueError, match="not readable YAML"):
        load_config(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="must hold keys and values"):
        load_config(tmp_path / "list.yaml")


def test_ones_own_file_comes_before_the_one_of_that_name_that_is_shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = load_config("configs/demo.yaml")
    assert shipped == load_config(CONFIGS / "demo.yaml")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text("seed: 7")
    assert load_config("configs/demo.yaml") == Config(seed=7)
    with pytest.raises(ValueError, match=r"there is no config file configs/dem\.yaml"):
        load_config("configs/dem.yaml")


def test_a_quick_look_cuts_every_run_and_lengthens_none(monkeypatch):
    monkeypatch.setenv("RAYCTSL_QUICK", "1")
    for asked, taken in (((1000, 200, 50, 5), (4, 2, 4, 2)), ((3, 1, 2, 1), (3, 1, 2, 1))):
        keys = ("inner_steps", "trajectories", "finetune.steps", "finetune.seeds")
        config = load_config(None, dict(zip(keys, asked, strict=True)))
        assert (config.inner_steps, config.trajectories, config.finetune.steps, config.finetune.seeds) == taken


def test_a_new_method_starts_its_section_afresh():
    raw = {"method": {"name": "shifting", "beta": 0.3, "shift_delay": 1}}
    assert apply_overrides(raw, {"method.name": "reptile"})["method"] == {"name": "reptile"}
    assert apply_overrides(raw, {"method.name": "shifting"})["method"] == raw["method"]
    assert apply_overrides({"method": {"beta": 0.3}}, {"method": "shifting"})["method"]["beta"] == 0.3  # its method
    for again in ({"method.name": "reptile", "beta": 2}, {"beta": 2, "method.name": "reptile"}):
        assert apply_overrides(raw, again)["method"] == {"name": "reptile", "beta": 2}


def test_a_file_names_its_method_alone_as_the_command_line_does(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("method: reptile\ninner_steps: 10\n")
    assert load_config(path).method == ReptileConfig(beta=5)
    assert load_config(path, {"beta": 1}).method == ReptileConfig(beta=1)
    assert load_config(path, {"method": "reptile", "average": 0.5}).method == ReptileConfig(beta=5, average=0.5)
    assert load_config(path, {"method": "fomaml_pp", "every": 3}).method.model_dump()["every"] == 3
    with pytest.raises(ValueError, match="config key 'every' is unknown"):
        load_config(path, {"every": 3})
    path.write_text("method: reptil\n")
    for changes in ({}, {"beta": 1}):
        with pytest.raises(ValueError, match="method 'reptil' is unknown; did you mean 'reptile'"):
            load_config(path, changes)


def test_an_empty_method_is_the_usual_one(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("method:\n")
    assert load_config(path) == Config()
    assert load_config(path, {"beta": 1}).method == Config().method.model_copy(update={"beta": 1.0})
    assert load_config(path, {"method": "reptile"}).method == ReptileConfig(beta=1)


@pytest.mark.parametrize("name", [[1], {"a": 1}, 3, None])
def test_a_method_whose_name_is_no_name_is_unknown(name):
    for changes in ({"method.name": name}, {"method.name": name, "beta": 1}, {"method": {"name": name}}):
        with pytest.raises(ValueError, match=r"^method .* is unknown; known: accurate, anil"):
            load_config(None, changes)


def test_overrides_leave_the_config_that_they_are_written_over_as_it_was():
    raw = {"method": {"name": "shifting", "beta": 0.3}, "data": {"tasks": ["latin"]}, "seed": 1}
    before = copy.deepcopy(raw)
    changes = {"method": "reptile", "beta": 2, "data.root": "elsewhere", "alpha": 0.5, "seed": 2}
    assert apply_overrides(raw, changes)["method"] == {"name": "reptile", "beta": 2}
    assert apply_overrides(raw, {"beta": 2})["method"] == {"name": "shifting", "beta": 2}
    assert raw == before


def test_bare_keys_find_their_section():
    config = load_config(None, {"workers": 3, "alpha": 0.5, "batch_size": 7, "shift_delay": 1, "snapshot_every": 9})
    assert (config.topology.workers, config.inner.alpha, config.data.batch_size) == (3, 0.5, 7)
    assert (config.method.model_dump()["shift_delay"], config.snapshot_every) == (1, 9)


def test_a_bare_key_of_two_sections_is_nobodys():
    assert apply_overrides({}, {"name": "resnet8"}) == {"name": "resnet8"}  # the model's, or the method's?
    with pytest.raises(ValueError, match="name"):
        load_config(None, {"name": "resnet8"})


@pytest.mark.parametrize(("cpus", "threads"), [(0, 1), (0.5, 1), (1, 1), (2.9, 2)])
def test_a_learner_has_a_thread_for_every_whole_cpu_and_one_at_least(cpus, threads):
    assert load_config(None, {"cpus_per_learner": cpus}).topology.threads == threads


def test_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3  # type: ignore[misc]


def test_needs_neither_torch_nor_ray():
    code = "import sys, rayctsl.config; print({'torch', 'ray'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_a_method_given_as_an_object_takes_the_papers_beta_too():
    assert Config(method=ReptileConfig(), inner_steps=100).method.beta == 2
    assert Config(method=ReptileConfig(beta=3.0)).method.beta == 3
