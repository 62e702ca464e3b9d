"""What is known of a sweep's trials, as `trials/<id>/trial.json`: everything that must outlive a kill."""

from __future__ import annotations

from typing import Literal

from rayctsl.contract import Contract, JsonObject, read_contract
from rayctsl.storage import Storage

METRIC, TIME = "validation_accuracy", "step"
DONE = ("finished", "stopped", "failed")  # what --resume does not run again
Status = Literal["running", "finished", "stopped", "failed", "lost"]
Report = dict[str, float]


class TrialRecord(Contract):
    """One trial. Example: TrialRecord(id="shifting-k10-beta0.1-5f0c2a", overrides={"beta": 0.1})"""

    id: str
    overrides: JsonObject
    """Config keys and their values, of any type that YAML has."""
    status: Status = "running"
    """stopped: by the scheduler; failed: its loss diverged; lost: its processes died, or an error: worth a new try."""
    reason: str = ""
    reports: tuple[Report, ...] = ()
    """Example: {"step": 100, "inner_steps_total": 400, "validation_accuracy": 31.2, "loss": 1.9, "seconds": 12.5}, the
    accuracy in percent."""

    @property
    def done(self) -> bool:
        return self.status in DONE

    def last(self, key: str) -> float | None:
        return self.reports[-1].get(key) if self.reports else None

    def reported(self, report: Report) -> TrialRecord:
        return self.changed(reports=(*self.reports, report))

    def closed(self, status: Status, reason: str = "") -> TrialRecord:
        return self.changed(status=status, reason=reason)

    def save(self, run: Storage) -> TrialRecord:
        run.write(f"trials/{self.id}/trial.json", self.to_bytes())
        return self


def read_record(run: Storage, name: str) -> TrialRecord | None:
    """A trial's record; None when it was never begun."""
    file = f"trials/{name}/trial.json"
    try:
        return read_contract(TrialRecord, run.read(file), f"{run}/{file}")
    except FileNotFoundError:
        return None


def read_records(run: Storage) -> dict[str, TrialRecord]:
    """All trials that were begun, by id."""
    found = [read_record(run, name) for name in run.names("trials")]
    return {record.id: record for record in found if record is not None}
