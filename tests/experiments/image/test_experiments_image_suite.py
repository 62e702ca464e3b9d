"""Suites: every shipped file loads, all methods spend alike, and what is wrong is said in one sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rayctsl.data.catalog import CATALOG, parse_reference
from rayctsl.data.embedded import EMBEDDED
from rayctsl.experiments.image.cells import choose, trainings, tune_cells
from rayctsl.experiments.image.cells import test_cells as build_test_cells
from rayctsl.experiments.image.records import KeptPhi, TrainResult
from rayctsl.experiments.image.suite import Suite, load_suite, suite_names
from rayctsl.experiments.image.summary import check_equal_steps
from tests.experiments.conftest import TINY

SHARED_PACKS = {"tiny_imagenet_1", "cifar10", "imagewoof", "cub200", "fashion_mnist", "chars74k_street", "vgg_flowers"}
SHARED_PACKS |= {"tiny_imagenet_2", "fruits360", "quickdraw10", "gtsrb", "sign_digits", "caltech101"}


def test_shipped_suites():
    lengths = [f"lengths_k{length}" for length in (10, 100, 1000, 400)]
    assert suite_names() == [
        "embedded",
        "imagenet",
        *lengths,
        "long",
        "meta_album",
        "paper",
        "shared",
        "short",
        "variants",
        "variants_taken",
        "vtab",
    ]


def test_the_suites_of_accuracy_against_k_differ_in_k_and_beta_alone():
    suites = {length: load_suite(f"lengths_k{length}") for length in (10, 100, 400, 1000)}
    for length, suite in suites.items():
        assert (suite.inner_steps, suite.total_steps * len(suite.sources)) == (length, 40_000)
        assert {len(suite.candidates(method)) for method in suite.methods if method != "scratch"} == {8}
        assert [at * length for at in suite.checkpoints] == [2000, 4000, 6000]
    others = [
        suite.model_dump(exclude={"base", "methods", "checkpoints", "tune", "steps", "sizes"})
        for suite in suites.values()
    ]
    assert all(other == others[0] for other in others)


def test_vtab_has_nineteen_targets_of_a_thousand_images():
    suite = load_suite("vtab")
    assert len(suite.targets) == 19
    assert suite.config("shifting", {"beta": 0.01}).finetune.train_size == 1000


@pytest.mark.parametrize("name", suite_names())
def test_all_methods_of_a_shipped_suite_spend_the_same_inner_steps(name):
    suite = load_suite(name)
    spent = {}
    for method in suite.methods:
        for candidate in suite.candidates(method):
            configs = [suite.config(method, candidate), suite.start_config(method)]
            tasks = {"single": 1}
            spent[method] = sum(c.total_steps * tasks.get(c.method.name, len(suite.sources)) for c in configs if c)
    spent.pop("scratch", None)
    assert set(spent.values()) == {suite.total_steps * len(suite.sources)}


@pytest.mark.parametrize("name", suite_names())
def test_datasets_of_shipped_suites_exist_somewhere(name):
    suite = load_suite(name)
    for dataset in (*suite.sources, *suite.targets):
        known = {*CATALOG, *EMBEDDED, *SHARED_PACKS}
        assert parse_reference(dataset).name in known or dataset.endswith("_micro")  # Meta-Album's are imported


def test_the_paper_suite_is_the_paper():
    suite = load_suite("paper")
    config = suite.config("shifting", {"beta": 0.01})
    assert (config.model.name, config.inner_steps, config.trajectories) == ("resnet20", 1000, 200)
    assert (config.data.batch_size, config.inner.alpha, len(suite.sources), len(suite.targets)) == (128, 0.01, 8, 5)
    assert (config.finetune.steps, config.finetune.alpha) == (1000, 0.1)


def test_beta_follows_k_as_in_the_paper(tiny):
    suite = load_suite("paper")
    wanted = {"shifting": (1, 0.1, 0.01), "reptile": (5, 2, 1), "fomaml": (0.5, 0.2, 0.1), "leap": (0.1, 0.1, 0.1)}
    for method, betas in wanted.items():
        for length, beta in zip((10, 100, 1000), betas, strict=True):
            config = suite.config(method, {"beta": betas[-1]}, inner_steps=length)
            assert (config.method.beta, config.inner_steps * config.trajectories) == (beta, 200_000)


def test_candidates_are_the_product_of_lists_and_joined_keys_move_together(tiny):
    methods = {"shifting": {"alpha": [1, 2], "beta": [3, 4]}, "mtl": {"alpha, beta": [1, 2, 3, 4]}}
    suite = load_suite(tiny(methods=methods, lengths={}))
    assert suite.candidates("shifting") == [
        {"alpha": 1, "beta": 3},
        {"alpha": 1, "beta": 4},
        {"alpha": 2, "beta": 3},
        {"alpha": 2, "beta": 4},
    ]
    assert suite.candidates("mtl")[2] == {"alpha": 3, "beta": 3}
    config = suite.config("mtl", suite.candidates("mtl")[2])
    assert (config.inner.alpha, config.method.beta) == (3, 3)


def test_single_spends_on_one_task_what_others_spend_on_all(tiny):
    suite = load_suite(tiny())
    assert suite.config("single", {"source": "spots"}).total_steps == 3 * suite.config("mtl", {}).total_steps
    assert suite.checkpoint_steps("single") == [12, 24]
    assert suite.checkpoint_steps("mtl") == [4, 8]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": {"shifting": {"beta": [1, 2]}, "mtl": {"beta": 1}}}, "mtl has 1 candidates, shifting 2"),
        ({"methods": {"shiftin": {}}}, "method 'shiftin' is unknown; did you mean 'shifting'"),
        ({"methods": {"shifting": {"beta": [1, -2]}}}, "method.beta: input should be greater than or equal to 0"),
        ({"methods": {"shifting": {"bta": [1, 2]}}}, "config key 'bta' is unknown; did you mean 'beta'"),
        ({"targets": ["spots"]}, "'spots' is both a source and a target"),
        ({"targets": []}, "targets"),
        ({"checkpoints": [4]}, "checkpoints must lie before the last trajectory, 4"),
        ({"lengths": {"inner_steps": [3]}}, "16 inner steps are not a multiple of K = 3"),
        ({"seeds": 0}, "seeds: input should be greater than or equal to 1"),
        ({"seed": 1}, "suite key 'seed' is unknown; did you mean 'seeds'"),
        ({"base": {"inner_step": 3}}, "config key 'inner_step' is unknown"),
    ],
)
def test_wrong_suites(tiny, changes, sentence):
    with pytest.raises(ValueError, match="suite") as caught:
        load_suite(tiny(**changes))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_suites(tmp_path):
    with pytest.raises(ValueError, match="there is no suite 'shard'; did you mean 'shared'"):
        load_suite("shard")
    with pytest.raises(ValueError, match="there is no suite"):
        load_suite(str(tmp_path / "none.yaml"))
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ValueError, match="not readable YAML"):
        load_suite(str(tmp_path / "bad.yaml"))
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="must hold keys and values"):
        load_suite(str(tmp_path / "list.yaml"))


def test_a_suite_survives_a_round_trip(tiny):
    suite = load_suite(tiny())
    assert Suite.model_validate(yaml.safe_load(yaml.safe_dump(suite.model_dump(mode="json")))) == suite


def test_a_search_with_several_seeds_takes_the_best_mean(tiny):
    methods = {"shifting": {"beta": [0.1, 0.2]}, "shifting+pull": {"pull": 0.5, "beta": [0.1, 0.2]}}
    suite = load_suite(tiny(methods=methods, lengths={}, tune={"seeds": 2, "seed": 7, "trajectories": 2}))
    cells = tune_cells(suite, "data")
    assert [cell.name for cell in cells][:2] == ["tune-shifting-beta0.1", "tune-shifting-beta0.1-trial1"]
    assert [cell.arguments["config"]["seed"] for cell in cells] == [7, 8] * 4
    tuned = {
        cell.name: {"accuracy": accuracy} for cell, accuracy in zip(cells, [9, 1, 6, 6, 5, 5, 9, None], strict=True)
    }
    assert choose(suite, tuned) == {"shifting": {"beta": 0.2}, "shifting+pull": {"pull": 0.5, "beta": 0.1}}


def kept(step: int, name: str) -> KeptPhi:
    return {"step": step, "path": f"{name}/at{step}", "sha256": name, "spent": {"inner": 3 * step}}


def test_no_two_fine_tunings_of_a_method_share_a_number_and_what_diverged_has_no_last_phi(tiny):
    base = {**TINY["base"], "finetune": {"steps": 4, "batch_size": 4, "seeds": 2}}
    suite = load_suite(tiny(base=base, methods={"shifting": {"beta": 1}}, lengths={}, targets=["rings"], seeds=3))
    trained: dict[str, TrainResult] = {
        training.name: {"points": [kept(4, training.name), kept(16, training.name)], "losses": [], "diverged": None}
        for training in trainings(suite)
    }
    lost = "train-shifting-k4-seed2"
    trained[lost] = {"points": [kept(4, lost)], "losses": [], "diverged": "after step 5"}
    names = [cell.name.removeprefix("test-shifting-k4-") for cell in build_test_cells(suite, trained, "data")]
    first = ["seed0-at4-rings-0", "seed0-at4-rings-1", "seed0-at16-rings-0", "seed0-at16-rings-1"]
    assert names == [*first, "seed1-at16-rings-2", "seed1-at16-rings-3"]


def test_methods_that_spent_other_numbers_of_steps_are_not_compared():
    spent = {"shifting": 48, "reptile": 48, "scratch": 0}
    report: Any = SimpleNamespace(finals=spent, spent=lambda method: {"inner": spent[method]})
    check_equal_steps(report)
    spent["reptile"] = 47
    with pytest.raises(AssertionError, match="different numbers of inner steps"):
        check_equal_steps(report)
