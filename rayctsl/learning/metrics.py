"""Metrics of a run: one row per `log_every` steps, as Parquet and, when asked for, TensorBoard files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayctsl.storage import Storage

FILE = "metrics.parquet"


class Metrics:
    """Rows in memory, rewritten to the run folder as a whole: a reader always finds a complete file."""

    def __init__(self, storage: Storage, tensorboard: bool = False):
        self.storage, self.rows = storage, list[dict[str, Any]]()
        self._board = _open_board(storage) if tensorboard else None

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self._board:
            for name, value in row.items():
                if isinstance(value, float) and np.isfinite(value):
                    self._board.add_scalar(name, value, row["step"])

    def save(self) -> None:
        if not self.rows:
            return
        names = dict.fromkeys(name for row in self.rows for name in row)
        table = pa.table({name: [row.get(name) for row in self.rows] for name in names})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        self.storage.write(FILE, sink.getvalue())
        if self._board:
            self._board.flush()

    def restore(self, step: int) -> None:
        """Take up the rows of an earlier session, as far as the snapshot that the run continues from."""
        if self.storage.exists(FILE):
            self.rows = [row for row in read_metrics(self.storage).to_pylist() if row["step"] <= step]

    def close(self) -> None:
        self.save()
        if self._board:
            self._board.close()


def read_metrics(storage: Storage) -> pa.Table:
    """The metrics table of a run folder."""
    return pq.read_table(pa.BufferReader(storage.read(FILE)))


def _open_board(storage: Storage) -> Any:
    if not storage.local:
        raise ValueError("TensorBoard files need a local run folder")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("tensorboard=true needs the package: pip install 'rayctsl[tensorboard]'") from None
    return SummaryWriter(f"{storage.root}/tensorboard")
