"""What a search says by itself: `experiments image --stage tune`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayctsl.commands.experiments import main
from rayctsl.experiments.image.cells import trial_name
from rayctsl.experiments.image.suite import load_suite
from rayctsl.experiments.image.text import format_search


def test_the_best_of_every_method_is_paired_with_the_firsts_by_seed(tiny):
    suite = load_suite(tiny(methods={"shifting": {"beta": [0.1, 1]}, "reptile": {"beta": [1, 2]}, "scratch": {}}))
    found = {
        ("shifting", 0.1): [20.0, 22.0, 24.0],
        ("shifting", 1): [90.0, None, 90.0],  # one diverged: no candidate
        ("reptile", 1): [19.0, 22.0, 25.0],
        ("reptile", 2): [23.0, 25.0, 27.0],  # three more, whatever the seed
    }
    tuned = {
        trial_name(method, {"beta": beta}, number): {} if accuracy is None else {"accuracy": accuracy}
        for (method, beta), values in found.items()
        for number, accuracy in enumerate(values)
    }
    assert format_search(suite, tuned).splitlines() == [
        "| method | candidates: accuracy on held-out images of the sources | best | minus shifting |",
        "|---|---|---|---|",
        "| shifting | beta 0.1: 22.0; beta 1: diverged | 22.0 ± 5.0 |  |",
        "| reptile | beta 1: 22.0; beta 2: 25.0 | 25.0 ± 5.0 | +3.0 ± 0.0 |",
    ]


def test_the_command_prints_it(tiny, packs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    suite = tiny(methods={"mtl": {"alpha, beta": [0.01, 0.05]}, "scratch": {}})
    flags = ["--out", str(tmp_path / "out"), "--data-root", str(packs), "--address", "none"]
    assert main(["image", "--suite", suite, *flags, "--stage", "tune"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    assert row.startswith("| mtl | alpha 0.01, beta 0.01: ")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_suite_that_searches_nothing_says_so(tiny):
    suite = load_suite(tiny(methods={"shifting": {"beta": 0.1}, "scratch": {}}))
    assert format_search(suite, {}) == "nothing to search: every method has one candidate"
