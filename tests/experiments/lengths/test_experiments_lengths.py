"""Accuracy against K: cells become one file, and the file becomes tables and figures."""

from __future__ import annotations

import json
import shutil

import pytest

from rayctsl.commands.experiments import main
from rayctsl.config import build_config
from rayctsl.experiments.lengths import results as collected
from rayctsl.experiments.lengths import tables
from rayctsl.experiments.lengths.report import write_report
from rayctsl.experiments.lengths.results import Results, Spent, count_meta_updates, read_results
from rayctsl.experiments.lengths.rivals import rivals_table
from rayctsl.experiments.output import Output


def row_of(method: str, length: int, seed: int, accuracy: float, **changes: object) -> collected.Test:
    row = {"suite": "s", "method": method, "inner_steps": length, "seed": seed, "spent": 40_000, "final": True}
    row |= {"target": "rings", "train_size": 0, "steps": 100, "accuracy": accuracy, **changes}
    return row  # type: ignore[return-value]


def spent(method: str, length: int, tasks: int, meta_updates: int, **extra: int) -> Spent:
    row = {"suite": "s", "method": method, "inner_steps": length, "seed": 0, "alpha": 0.01, "beta": 1.0}
    row |= {"tasks": tasks, "meta_updates": meta_updates, "gradients": {"inner": 40_000, **extra}, "seconds": 1.0}
    return row  # type: ignore[return-value]


@pytest.fixture
def results() -> Results:
    tests = [row_of("shifting", 1000, seed, 34.0 + seed) for seed in range(3)]
    tests += [row_of("shifting", 1000, seed, 31.0 + seed, spent=20_000, final=False) for seed in range(3)]
    tests += [row_of("reptile", 1000, seed, 31.5 + seed) for seed in range(3)]
    tests += [row_of("shifting", 10, 0, 30.0), row_of("reptile", 10, 0, 31.0)]
    tests += [row_of("shifting", 1000, 0, 20.0, steps=25), row_of("shifting", 1000, 0, 15.0, train_size=100)]
    trainings = [spent("shifting", 1000, 5, 8000), spent("reptile", 1000, 5, 8)]
    search = [{"suite": "s", "method": "reptile", "alpha": 0.01, "beta": 2.0, "accuracy": None}]
    return Results(search=search, trainings=trainings, tests=tests)  # type: ignore[typeddict-item]


def test_the_difference_is_paired_and_says_how_many_seeds(results):
    lines = tables.lengths_table(results).splitlines()
    assert lines[2].startswith("| 10 | 1 | 30.0 | 31.0 | -1.0 |")
    # 34, 35, 36 against 31.5, 32.5, 33.5: three seeds, no spread of the difference. From 32 at 20,000 to 35 at 40,000
    # a straight line is at Reptile's 32.5 after a sixth of the way.
    assert lines[3].startswith("| 1,000 | 3 | 35.0 ± 2.5 | 32.5 ± 2.5 | +2.5 ± 0.0 | 23,333 of 40,000 |")


def test_differences_on_the_way_and_by_other_recipes_are_paired_too(results):
    results["tests"] += [row_of("reptile", 1000, seed, 30.0 + seed, spent=20_000, final=False) for seed in range(3)]
    results["tests"] += [row_of("reptile", 1000, 0, 21.0, steps=25), row_of("single", 1000, 0, 50.0, train_size=100)]
    assert tables.paired_table(results).splitlines()[2:] == [
        "| 10 | 40,000 | 100 steps, all images | 30.0 | 31.0 | -1.0 |",
        "| 1,000 | 20,000 | 100 steps, all images | 32.0 ± 2.5 | 31.0 ± 2.5 | +1.0 ± 0.0 |",
        "| 1,000 | 40,000 | 25 steps, all images | 20.0 | 21.0 | -1.0 |",
        "| 1,000 | 40,000 | 100 steps, all images | 35.0 ± 2.5 | 32.5 ± 2.5 | +2.5 ± 0.0 |",
    ]


def test_what_longer_trajectories_cost_is_paired(results):
    results["tests"] += [
        row_of("reptile", 10, 1, 33.5),
        row_of("reptile", 400, 0, 30.5),
        row_of("reptile", 400, 1, 30.0),
    ]
    # Reptile at K = 10 has 31 and 33.5, at 400 30.5 and 30: -0.5 and -3.5; at 1,000 31.5 and 32.5: +0.5 and -1.
    assert tables.change_table(results).splitlines() == [
        "| minus K = 10, paired | K = 400 | K = 1,000 |",
        "|---|---|---|",
        "| Reptile | -2.0 ± 19.1 | -0.2 ± 9.5 |",
        "| shifting |  | +4.0 |",
    ]


def test_accuracy_on_the_way(results):
    results["tests"] += [row_of("scratch", 1000, 0, 12.0, spent=0)]  # which goes no way
    assert tables.way_table(results).splitlines() == [
        "| method | K | 20,000 steps | 40,000 steps |",
        "|---|---|---|---|",
        "| Reptile | 10 |  | 31.0 |",
        "| Reptile | 1,000 |  | 32.5 ± 2.5 |",
        "| shifting | 10 |  | 30.0 |",
        "| shifting | 1,000 | 32.0 ± 2.5 | 35.0 ± 2.5 |",
    ]


def test_other_recipes_do_not_leak_into_the_main_numbers(results):
    assert tables.by_length(results)["shifting"][1000][0] == 35.0
    means = {value: cell[0] for value, cell in tables.finetuning(results, "steps")["shifting", 1000].items()}
    assert means == {25: 20.0, 100: 35.0}
    means = {value: cell[0] for value, cell in tables.finetuning(results, "train_size")["shifting", 1000].items()}
    assert means == {0: 35.0, 100: 15.0}


def test_three_accounts_of_cost():
    step, exchange = 0.01, 0.001
    together = tables.cost(spent("shifting", 1000, 5, 8000), 40_000, step, exchange)
    assert together == tables.Cost(40_000, pytest.approx(8000 * 0.01 + 8000 * 0.001), 40_000)
    seldom = tables.cost(spent("reptile", 1000, 5, 8), 20_000, step, exchange)
    assert seldom == tables.Cost(20_000, pytest.approx(4000 * 0.01 + 4 * 0.001), 20_000)
    alone = tables.cost(spent("single", 100, 1, 40_000), 40_000, step, exchange)
    assert alone.seconds == pytest.approx(400.0)
    costly = tables.cost(spent("imaml", 1000, 5, 8, held_out=40, hessian=200), 20_000, step, exchange)
    assert costly.gradients == 20_000 + (40 + 2 * 200) // 2


def test_rivals_at_equal_steps_and_by_the_clock(results):
    results["tests"] += [row_of("shifting+pull", 1000, seed, 36.0 + seed) for seed in range(3)]
    for steps, accuracy in ((10_000, 30.0), (20_000, 33.0), (40_000, 37.0)):
        results["tests"] += [
            row_of("single", 100, seed, accuracy + seed, spent=steps, final=steps == 40_000) for seed in range(3)
        ]
    results["trainings"] += [spent("shifting+pull", 1000, 5, 8000), spent("single", 100, 1, 40_000)]
    lines = rivals_table(results, 0.01, 0.0025).splitlines()
    # Ours takes 8,000 steps of 10 ms and 8,000 exchanges of 2.5: 100 s, in which `single` takes 10,000 steps.
    assert "| shifting+pull | 1,000 | 37.0 ± 2.5 | shifting | +2.0 ± 0.0 | +2.0 ± 0.0, 40,000 |" in lines
    assert "| shifting+pull | 1,000 | 37.0 ± 2.5 | reptile | +4.5 ± 0.0 | +4.5 ± 0.0, 40,000 |" in lines
    assert "| shifting+pull | 1,000 | 37.0 ± 2.5 | single | -1.0 ± 0.0 | +6.0 ± 0.0, 10,000 |" in lines
    assert "| shifting | 10 | 30.0 | reptile | -1.0 |  |" in lines  # what it cost is not known
    assert len(lines) == 2 + 3 + 2 + 2


@pytest.mark.parametrize(("method", "expected"), [("shifting", 12), ("reptile", 3), ("mtl", 12)])
def test_meta_updates_are_counted_by_asking_the_method(method, expected):
    config = build_config({"method": {"name": method}, "inner_steps": 4, "trajectories": 3})
    assert count_meta_updates(config) == expected


def test_report_from_a_file(results, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results))
    again = read_results(tmp_path / "results.json")
    assert again == results
    write_report(again, Output(tmp_path / "out"), 0.01, 0.001)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"lengths_report.md", "lengths_k.png", "lengths_cost.png", "lengths_finetuning.png"}
    said = (tmp_path / "out" / "lengths_report.md").read_text()
    assert "| suite | method | tried: accuracy on held-out images of the sources |" in said
    assert "| s | reptile | alpha 0.01, beta 2: diverged |" in said


def test_a_file_of_something_else_is_refused(tmp_path, capsys):
    (tmp_path / "other.json").write_text("[1, 2]")
    assert main(["lengths", "--from", str(tmp_path / "other.json"), "--out", str(tmp_path / "out")]) == 2
    assert "does not hold collected results" in capsys.readouterr().err


def test_a_tiny_run_is_collected_whole(tiny, packs, tmp_path, capsys):
    methods = {"shifting": {"beta": [0.1, 0.2]}, "shifting+pull": {"pull": 0.5, "beta": [0.1, 0.2]}}
    methods |= {"reptile": {"beta": [0.5, 1]}}
    suite = tiny(methods=methods, lengths={}, steps=[2], sizes=[6], checkpoints=[2], seeds=1)
    out = tmp_path / "out"
    words = ["--suites", suite, "--seeds", "1", "--data-root", str(packs), "--address", "none"]
    assert main(["lengths", "--out", str(out), *words]) == 0
    found = read_results(out / "lengths_results.json")
    assert len(found["search"]) == 6
    assert [row["method"] for row in found["trainings"]] == ["reptile", "shifting+pull", "shifting"]
    assert {(row["tasks"], row["meta_updates"]) for row in found["trainings"]} == {(3, 16), (3, 4)}
    finals = [row for row in found["tests"] if row["final"] and row["method"] == "shifting+pull"]
    assert sorted((row["steps"], row["train_size"]) for row in finals) == [(2, 0)] * 2 + [(4, 0)] * 2 + [(4, 6)] * 2
    assert len([row for row in found["tests"] if not row["final"]]) == 3 * 2

    # Another machine takes over what is finished: with the data elsewhere, it computes the second seed alone.
    there, moved = tmp_path / "there", tmp_path / "moved"
    shutil.copytree(packs, moved)
    words[words.index(str(packs))] = str(moved)
    words[words.index("--seeds") + 1] = "2"
    assert main(["lengths", "--out", str(there), "--cells", str(out / "lengths_cells.tar.xz"), *words]) == 0
    first, both = capsys.readouterr().out, read_results(there / "lengths_results.json")
    assert f"{len(list(out.glob('*/cells/*.json')))} finished cells from" in first
    assert [row for row in both["tests"] if row["seed"] == 0] == found["tests"]
    assert sum(row["final"] for row in both["tests"]) == 2 * sum(row["final"] for row in found["tests"])
    assert len(list(there.glob("*/runs/*"))) == 3, "a training that came along was computed again"
