"""A sweep's tables from its records: the best first, and what is done."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from rayctsl.storage import Storage
from rayctsl.sweeps.config import Sweep
from rayctsl.sweeps.records import METRIC, Status, TrialRecord
from rayctsl.sweeps.report import format_choices, format_table, rows_of, settings_of, warnings_of, write_results

SWEEP = Sweep.model_validate({"search": {"beta": {"grid": [1, 2]}}})


def record(name: str, beta: float, accuracy: float, status: Status = "finished") -> TrialRecord:
    reports = ({"step": 1, "validation_accuracy": accuracy},)
    return TrialRecord(id=name, overrides={"beta": beta}, status=status, reports=reports)


def test_the_best_trial_comes_first_and_what_did_not_finish_last():
    records = [record("bad", 1, 10.0), record("stopped", 2, 90.0, "stopped"), record("good", 2, 20.0)]
    rows = rows_of(SWEEP, {each.id: each for each in records})
    assert [row["trial"] for row in rows] == ["good", "bad", "stopped"]
    assert [row["method.beta"] for row in rows] == [2, 1, 2]


def test_a_trial_whose_processes_died_counts_as_failed_and_is_told_of():
    lost = record("a", 1, 10.0).closed("lost", "no space left")
    rows = rows_of(SWEEP, {"a": lost})
    assert rows[0]["status"] == "failed"
    assert warnings_of(rows) == ["warning: a failed: no space left"]


def test_a_dimension_of_words_and_numbers_is_written_as_words(tmp_path):
    sweep = Sweep.model_validate({"search": {"data.flip": {"grid": [True, "always"]}}})
    flips = {name: TrialRecord(id=name, overrides={"data.flip": flip}) for name, flip in (("a", True), ("b", "always"))}
    write_results(Storage(tmp_path), rows_of(sweep, flips))
    table = pq.read_table(tmp_path / "results.parquet")
    assert table["data.flip"].to_pylist() == ["True", "always"]
    assert table["inner_steps"].to_pylist() == [1000, 1000]


def scored(*sections: tuple[dict[str, Any] | None, float], key: str = "method") -> dict[str, TrialRecord]:
    """The finished trials of a sweep that searches a section as a whole, and their accuracies."""
    names = [f"t{place}" for place in range(len(sections))]
    return {
        name: TrialRecord(
            id=name, overrides={key: section}, status="finished", reports=({"step": 1, METRIC: accuracy},)
        )
        for name, (section, accuracy) in zip(names, sections, strict=True)
    }


def test_methods_that_differ_in_an_option_are_settings_of_their_own(tmp_path):
    near, far = {"name": "shifting", "beta": 0.1}, {"name": "shifting", "beta": 0.5}
    rows = rows_of(SWEEP, scored((near, 60.0), ({**near, "pull": 0.9}, 20.0), (far, 50.0)))
    assert [str(setting) for setting in settings_of(rows)] == ["60.0 %", "50.0 %", "20.0 %"]
    heading, best, *_ = format_table(rows).splitlines()
    assert heading.split()[:6] == ["status", "name", "beta", "K", "M", "pull"]
    assert best.split()[1:6] == ["shifting", "0.1", "1000", "200", "0"], "what a trial leaves out is its default"
    write_results(Storage(tmp_path), rows)
    table = pq.read_table(tmp_path / "results.parquet")
    assert table["method.pull"].to_pylist() == [0.0, 0.0, 0.9]
    assert table["method.beta"].to_pylist() == [0.1, 0.5, 0.1]


def test_an_option_that_a_method_has_not_is_empty_in_its_row():
    rows = rows_of(SWEEP, scored(({"name": "shifting", "pull": 0.9}, 60.0), ({"name": "leap", "norm": False}, 20.0)))
    assert [(row["method.pull"], row["method.norm"]) for row in rows] == [(0.9, None), (None, False)]
    assert format_table(rows).splitlines()[2].split()[5:7] == ["-", "False"]


def test_a_section_that_some_trials_leave_out_is_spread_too():
    rows = rows_of(SWEEP, scored((None, 60.0), ({"optimizer": "adam"}, 20.0), key="outer"))
    assert [row["outer.optimizer"] for row in rows] == [None, "adam"]
    assert len(settings_of(rows)) == 2


def test_what_a_resume_does_not_run_again():
    done = {
        status: TrialRecord(id="x", overrides={}, status=status).done
        for status in ("running", "lost", "finished", "stopped", "failed")
    }
    assert done == {"running": False, "lost": False, "finished": True, "stopped": True, "failed": True}


def trial_row(beta: float, seed: int, accuracy: float | None, steps: int = 10) -> dict[str, Any]:
    status = "failed" if accuracy is None else "finished"
    row = {"trial": f"k{steps}-beta{beta}-{seed}", "status": status, "method.name": "reptile", "method.beta": beta}
    row |= {"inner_steps": steps, "trajectories": 100 // steps, "seed": seed, "validation_accuracy": accuracy}
    return {**row, "loss": 1.0, "inner_steps_total": 100, "seconds": float(seed), "reason": ""}


def test_seeds_of_a_setting_are_judged_by_their_mean():
    lucky = [trial_row(1.0, 0, 40.0), trial_row(1.0, 1, 10.0)]
    steady = [trial_row(2.0, 0, 31.0), trial_row(2.0, 1, 29.0)]
    fragile = [trial_row(4.0, 0, 50.0), trial_row(4.0, 1, None)]
    alone = [trial_row(1.0, 0, 20.0, steps=100)]
    settings = settings_of([*lucky, *steady, *fragile, *alone])
    assert [setting.accuracy for setting in settings] == [30.0, 25.0, 20.0, 50.0]
    assert settings[0].rows[0]["validation_accuracy"] == 31.0
    assert format_choices(settings).splitlines() == [
        "best beta by method and K",
        "  reptile, K 10: beta 2 (30.0 ± 12.7 %, 2 seeds)",
        "  reptile, K 100: beta 1 (20.0 %)",
    ]
