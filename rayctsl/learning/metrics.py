"""Metrics of a run: rows per `log_every` steps, as Parquet and to experiment trackers.

`metrics.parquet` is a folder of parts, one per snapshot, which any Parquet reader takes for one table. It is in long
form: a row without a `task` has what holds for the whole run, with the mean loss; a row with one has that task's loss.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayctsl.learning.trackers import Tracker, finite
from rayctsl.storage import Storage

FILE, TASK = "metrics.parquet", "task"
SHOWN_TASKS = 20  # whose curves are kept for the plot; of more, nobody could tell one from another


class Metrics:
    """What is new goes into a part of its own, so that saving costs the same however long the run has been."""

    def __init__(self, storage: Storage, trackers: Sequence[Tracker] = ()):
        self.storage, self.rows = storage, list[dict[str, Any]]()
        self.curves: dict[str, list[float]] = {}  # losses by task, one for every row
        self._new: list[tuple[dict[str, Any], dict[str, float]]] = []
        self.trackers = trackers

    def add(self, row: dict[str, Any], losses: Mapping[str, float] | None = None) -> None:
        """One step's row, and every task's loss."""
        losses = dict(losses or {})
        self.rows.append(row)
        self._new.append((row, losses))
        self._draw(losses)
        for tracker in self.trackers:
            tracker.log(row["step"], finite({**row, **{f"loss/{task}": loss for task, loss in losses.items()}}))

    def _draw(self, losses: Mapping[str, float]) -> None:
        if len(losses) <= SHOWN_TASKS:
            for task, loss in losses.items():
                self.curves.setdefault(task, []).append(loss)

    def save(self) -> None:
        if self._new:
            self._write(self._new, f"part-{self._new[0][0]['step']:09d}")
            self._new = []
        for tracker in self.trackers:
            tracker.flush()

    def _write(self, rows: list[tuple[dict[str, Any], dict[str, float]]], part: str) -> None:
        names = dict.fromkeys(name for row, _ in rows for name in row)
        columns: dict[str, list[Any]] = {name: [row.get(name) for row, _ in rows] for name in names}
        steps, losses = columns["step"], columns["loss"]
        tasks: list[str | None] = [None] * len(rows)
        for row, by_task in rows:
            steps += [row["step"]] * len(by_task)
            tasks += list(by_task)
            losses += list(by_task.values())
        for name, values in columns.items():
            values += [None] * (len(steps) - len(values)) if name not in ("step", "loss") else []
        sink = io.BytesIO()
        pq.write_table(pa.table({**columns, TASK: pa.array(tasks, pa.string())}), sink)
        self.storage.write(f"{FILE}/{part}.parquet", sink.getvalue())

    def restore(self, step: int) -> None:
        """Take up the rows of an earlier session, as far as the snapshot that the run continues from."""
        self.rows, self.curves, self._new = [], {}, []
        parts = _parts(self.storage)
        if parts == [] or not self.storage.exists(FILE):
            return
        table = _read(self.storage)
        kept = table.filter(pc.less_equal(table["step"], step))
        by_step: dict[int, dict[str, float]] = {}
        for each in kept.filter(pc.is_valid(kept[TASK])).select(["step", TASK, "loss"]).to_pylist():
            by_step.setdefault(each["step"], {})[each[TASK]] = each["loss"]
        rows = _without_tasks(kept).to_pylist()
        if len(kept) < len(table) or parts is None:  # later rows, or the one file of earlier versions
            self._clear()
            if rows:
                self._write([(row, by_step.get(row["step"], {})) for row in rows], f"part-{rows[0]['step']:09d}")
        self.rows = rows
        for row in rows:
            self._draw(by_step.get(row["step"], {}))

    def _clear(self) -> None:
        parts = _parts(self.storage)
        for name in [FILE] if parts is None else [f"{FILE}/{part}" for part in parts]:
            self.storage.delete(name)

    def close(self) -> None:
        self.save()
        for tracker in self.trackers:
            tracker.close()


def read_metrics(storage: Storage) -> pa.Table:
    """What holds for the whole run, a row per logged step."""
    return _without_tasks(_read(storage))


def read_task_losses(storage: Storage) -> pa.Table:
    """Columns step, task, loss."""
    table = _read(storage)
    return table.filter(pc.is_valid(table[TASK])).select(["step", TASK, "loss"])


def _parts(storage: Storage) -> list[str] | None:
    """None for the one file of earlier versions."""
    try:
        return storage.names(FILE)
    except NotADirectoryError:
        return None


def _without_tasks(table: pa.Table) -> pa.Table:
    return table.filter(pc.is_null(table[TASK])).drop_columns([TASK])


def _read(storage: Storage) -> pa.Table:
    """All parts as one table; the file of an earlier version had a column per task."""
    if (parts := _parts(storage)) is not None:
        tables = [pq.read_table(pa.BufferReader(storage.read(f"{FILE}/{part}"))) for part in parts]
        return pa.concat_tables(tables, promote_options="default").sort_by("step")
    table = pq.read_table(pa.BufferReader(storage.read(FILE)))
    wide = [name for name in table.column_names if name.startswith("loss/")]
    means = table.drop_columns(wide).append_column(TASK, pa.nulls(len(table), pa.string()))
    tasks = [
        pa.table({"step": table["step"], "loss": table[name], TASK: [name.removeprefix("loss/")] * len(table)})
        for name in wide
    ]
    return pa.concat_tables([means, *tasks], promote_options="default").sort_by("step")
