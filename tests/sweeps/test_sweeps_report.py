"""A sweep's tables from its records: the best first, and what is done."""

from __future__ import annotations

from rayctsl.sweeps.config import Sweep
from rayctsl.sweeps.report import rows_of
from rayctsl.sweeps.trial import TrialRecord

SWEEP = Sweep.model_validate({"search": {"beta": {"grid": [1, 2]}}})


def record(name: str, beta: float, accuracy: float, status: str = "finished") -> TrialRecord:
    return TrialRecord(name, {"beta": beta}, status, "", [{"step": 1, "validation_accuracy": accuracy}])


def test_the_best_trial_comes_first_and_what_did_not_finish_last():
    records = [record("bad", 1, 10.0), record("stopped", 2, 90.0, "stopped"), record("good", 2, 20.0)]
    rows = rows_of(SWEEP, {each.id: each for each in records})
    assert [row["trial"] for row in rows] == ["good", "bad", "stopped"]
    assert [row["method.beta"] for row in rows] == [2, 1, 2]


def test_what_a_resume_does_not_run_again():
    done = {
        status: TrialRecord("x", {}, status).done for status in ("running", "lost", "finished", "stopped", "failed")
    }
    assert done == {"running": False, "lost": False, "finished": True, "stopped": True, "failed": True}
