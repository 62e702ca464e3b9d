"""The folder of an experiment: tables as parquet, small results as JSON, figures as PNG, each written atomically."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.storage import Storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


class Output:
    """Writes and finds an experiment's files."""

    def __init__(self, folder: str | Path):
        self.storage = Storage(folder)

    def __str__(self) -> str:
        return str(self.storage)

    def has(self, name: str) -> bool:
        return self.storage.exists(name)

    def write_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Rows with the same keys as NAME.parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table({key: [row[key] for row in rows] for key in rows[0]}), buffer)
        self.storage.write(f"{name}.parquet", buffer.getvalue())

    def write_table(self, name: str, columns: Mapping[str, ArrayLike]) -> None:
        """Columns of equal length as NAME.parquet; numpy arrays of any shape are flattened."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table({key: np.asarray(values).reshape(-1) for key, values in columns.items()}), buffer)
        self.storage.write(f"{name}.parquet", buffer.getvalue())

    def write_json(self, name: str, content: object) -> None:
        self.storage.write(f"{name}.json", json.dumps(content, indent=1).encode())

    def write_text(self, name: str, text: str) -> None:
        self.storage.write(name, text.encode())

    def write_figure(self, name: str, figure: Figure) -> None:
        """A matplotlib figure as NAME.png, in 256 colours, which makes the file three times smaller; closes it."""
        from matplotlib import pyplot as plt
        from PIL import Image

        drawn, buffer = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, dpi=110, format="png")
        plt.close(figure)
        Image.open(drawn).convert("RGB").quantize(256).save(buffer, "PNG", optimize=True)
        self.storage.write(f"{name}.png", buffer.getvalue())


def write_json_file(path: Path, content: object) -> None:
    """One JSON file anywhere, atomically; ValueError when it cannot be written there."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file for the result")
    try:
        Storage(path.absolute().parent).write(path.name, json.dumps(content).encode())
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error}") from None
