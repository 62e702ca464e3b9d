"""What a sweep leaves behind: the table, `results.parquet`, `best.yaml`, the best initialization, the plots."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayctsl.config import dump_config
from rayctsl.contract import Json
from rayctsl.registry import Initialization, open_initialization, publish
from rayctsl.statistics import mean_and_interval
from rayctsl.storage import Storage
from rayctsl.sweeps.config import Sweep, trial_config
from rayctsl.sweeps.records import METRIC, TrialRecord

MEASURED = ("trial", "status", METRIC, "loss", "inner_steps_total", "seconds", "reason")  # columns besides the config's

# Config keys that every table shows, by the names that a search may give them.
SHOWN = {"method": "method.name", "method.name": "method.name", "beta": "method.beta", "method.beta": "method.beta"}


def rows_of(sweep: Sweep, records: Mapping[str, TrialRecord]) -> list[dict[str, Any]]:
    """One row per trial, the best first, trials that did not finish last."""
    rows, searched = [], _searched(records.values())
    for record in records.values():
        config = trial_config(sweep, record.overrides)
        row: dict[str, Any] = {
            "trial": record.id,
            "status": "failed" if record.status == "lost" else record.status,
            "method.name": config.method.name,
            "method.beta": config.method.beta,
            "inner_steps": config.inner_steps,
            "trajectories": config.trajectories,
        }
        resolved = config.model_dump(mode="json")
        for key in searched:
            if SHOWN.get(key, key) not in row:
                row[key] = _plain(record.overrides[key] if key in record.overrides else _look_up(resolved, key))
        for key in (METRIC, "loss", "inner_steps_total", "seconds"):
            row[key] = record.last(key)
        rows.append({**row, "reason": record.reason})
    order = {"finished": 0, "stopped": 1, "failed": 2}
    return sorted(rows, key=lambda row: (order.get(row["status"], 3), -(row[METRIC] or 0), row["trial"]))


def _searched(records: Iterable[TrialRecord]) -> list[str]:
    """The keys that any trial overrides; of a section that is given as a whole, those that any trial gives in it."""
    tried: dict[str, list[Json]] = {}
    for record in records:
        for key, value in record.overrides.items():
            tried.setdefault(key, []).append(value)
    keys: list[str] = []
    for key, values in tried.items():
        keys += [f"{key}.{name}" for value in values if isinstance(value, dict) for name in value] or [key]
    return list(dict.fromkeys(keys))


def _look_up(resolved: Json, key: str) -> Json:
    """What a trial's config has there, its default included; None for an option that its method has not."""
    for part in key.split("."):
        resolved = resolved.get(part) if isinstance(resolved, dict) else None
    return resolved


def _plain(value: Json) -> Json:
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def write_results(run: Storage, rows: Sequence[Mapping[str, Any]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({key: _column([row[key] for row in rows]) for key in rows[0]}), sink)
    run.write("results.parquet", sink.getvalue())


def _column(values: list[Any]) -> list[Any]:
    """Of one type, as Parquet wants it: all as words where one is a word, as in `data.flip: [true, always]`."""
    words = any(isinstance(value, str) for value in values)
    return [value if value is None else str(value) for value in values] if words else values


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as text; reasons stand in the warnings, not here."""
    shown = [key for key in rows[0] if key not in ("trial", "reason")]
    lines = [[_heading(key) for key in shown], *([_cell(row[key]) for key in shown] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(shown))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


@dataclass(frozen=True)
class Setting:
    """Finished trials that differ in nothing but their seed, the best first, and their mean accuracy in percent."""

    rows: tuple[Mapping[str, Any], ...]
    accuracy: float
    interval: float  # NaN for a single trial

    def __str__(self) -> str:
        spread = f" ± {self.interval:.1f} %, {len(self.rows)} seeds" if len(self.rows) > 1 else " %"
        return f"{self.accuracy:.1f}{spread}"


def settings_of(rows: Sequence[Mapping[str, Any]]) -> list[Setting]:
    """The settings of a sweep's rows, the best mean first; one of whose trials any failed comes last."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name not in (*MEASURED, "seed"))
        groups.setdefault(key, []).append(row)
    settings = []
    for group in groups.values():
        finished = tuple(row for row in group if row["status"] == "finished")
        if finished:
            failed = any(row["status"] == "failed" for row in group)
            settings.append((failed, Setting(finished, *mean_and_interval([row[METRIC] for row in finished]))))
    return [setting for _, setting in sorted(settings, key=lambda pair: (pair[0], -pair[1].accuracy))]


def format_choices(settings: Sequence[Setting]) -> str:
    """For every method and K the beta that validates best."""
    best: dict[tuple[str, int], Setting] = {}
    for setting in settings:  # the best come first
        row = setting.rows[0]
        best.setdefault((row["method.name"], row["inner_steps"]), setting)
    lines = ["best beta by method and K"]
    for (method, steps), setting in sorted(best.items()):
        lines.append(f"  {method}, K {steps}: beta {setting.rows[0]['method.beta']:.3g} ({setting})")
    return "\n".join(lines)


def write_best(sweep: Sweep, run: Storage, best: TrialRecord, storage: str | None = None) -> Initialization:
    """`best.yaml` for the train command, and the best trial's initialization in a registry (the run folder's own)."""
    note = f"# The best trial of a sweep: {best.id}, validation accuracy {best.last(METRIC):.1f} %\n"
    run.write("best.yaml", (note + dump_config(trial_config(sweep, best.overrides))).encode())
    found = open_initialization(str(run.inside(f"trials/{best.id}")))
    metrics = {**found.card.metrics, METRIC: best.last(METRIC), "sweep_trial": best.id}
    return publish(Initialization(found.storage, found.card.changed(metrics=metrics)), storage or str(run))


def warnings_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per trial that failed."""
    failed = [row for row in rows if row["status"] == "failed"]
    return [f"warning: {row['trial']} failed: {row['reason']}" for row in failed]


def _heading(key: str) -> str:
    return {METRIC: "accuracy %", "inner_steps": "K", "trajectories": "M"}.get(key, key.removeprefix("method."))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
