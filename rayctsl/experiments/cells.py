"""An experiment's cells: independent pieces of work, each with a file of its own.

Finished cells are kept, so an experiment that was stopped goes on where it was. Cells run in parallel on Ray, or one
after another in this process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from rayctsl.config import build_config
from rayctsl.contract import JsonObject
from rayctsl.experiments.output import Output
from rayctsl.learning.lease import Lease
from rayctsl.progress import Progress

Arguments = TypeVar("Arguments", bound=Mapping[str, object])  # JSON, as its result
Result = TypeVar("Result")
Finished = Iterator[tuple["Cell[Arguments]", Result, float]]  # with the seconds that it took


@dataclass(frozen=True)
class Cell(Generic[Arguments]):
    """A name for the file, and everything that the result is a function of.

    Example: Cell("relu-alpha0.01-draw3", {"activation": "relu", "alpha": 0.01, "draw": 3})
    """

    name: str
    arguments: Arguments


def run_cells(
    cells: Sequence[Cell[Arguments]],
    compute: Callable[[Arguments], Result],
    out: Output,
    *,
    label: str,
    command: Callable[[Cell[Arguments]], str],
    address: str | None = None,
    gpus: float = 0,
    only: str | None = None,
) -> dict[str, Result]:
    """Compute the cells that the folder lacks; returns every finished cell's result by name.

    Args:
        compute: importable; a cell's arguments -> its result, which is not None.
        command: the line that computes one cell again, for the cell's file and the log.
        address: of Ray (`auto`, `ray://…`, `local` or nothing to start it here); `none` does without Ray.
        gpus: what each cell reserves, on Ray.
        only: compute this cell alone, finished or not.
    """
    if only is not None and only not in [cell.name for cell in cells]:
        raise ValueError(f"there is no cell {only!r}; the first is {cells[0].name!r}")
    results: dict[str, Result | None] = {cell.name: _kept(cell, out) for cell in cells}
    missing = [cell for cell in cells if (results[cell.name] is None if only is None else cell.name == only)]
    progress = Progress(len(cells), label, start=len(cells) - len(missing), unit="cell")
    run = _here if address == "none" or len(missing) < 2 else _on_ray
    # A single cell may be computed beside others; who computes them all is alone.
    alone = Lease(out.storage.inside("lease"), f"the experiment in {out.storage}") if only is None else nullcontext()
    with alone if missing else nullcontext():
        for cell, result, seconds in run(missing, compute, address, gpus):
            line = command(cell)
            record = {"command": line, "arguments": cell.arguments, "seconds": seconds, "result": result}
            out.write_json(f"cells/{cell.name}", record)
            results[cell.name] = result
            progress.say(f"{cell.name}: {seconds:.1f} s  ({line})")
            progress.advance(1)
    progress.close()
    return {name: result for name, result in results.items() if result is not None}


def _kept(cell: Cell[Arguments], out: Output) -> Result | None:
    """A finished cell's result; None when there is none, or it was computed from other arguments."""
    try:
        record = json.loads(out.storage.read(f"cells/{cell.name}.json"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    result: Result | None = record["result"]
    asked = json.loads(json.dumps(cell.arguments))
    return result if _identity(record.get("arguments", {})) == _identity(asked) else None


def _identity(arguments: JsonObject) -> JsonObject:
    """What a result is a function of: not where the data lie, and a config key younger than the file at its default."""
    kept = {key: value for key, value in arguments.items() if key != "root"}
    if "config" in kept:
        try:
            kept["config"] = build_config(kept["config"]).model_dump(mode="json")
        except ValueError:  # it has keys that are no more
            return kept
        kept["config"]["data"].pop("root")
    return kept


def _timed(compute: Callable[[Arguments], Result], arguments: Arguments) -> tuple[Result, float]:
    started = time.perf_counter()
    return compute(arguments), time.perf_counter() - started


def _here(
    cells: Sequence[Cell[Arguments]], compute: Callable[[Arguments], Result], address: str | None, gpus: float
) -> Finished[Arguments, Result]:
    for cell in cells:
        yield cell, *_timed(compute, cell.arguments)


def _on_ray(
    cells: Sequence[Cell[Arguments]], compute: Callable[[Arguments], Result], address: str | None, gpus: float
) -> Finished[Arguments, Result]:
    from rayctsl.cluster.cells import run_cells as run_on_cluster
    from rayctsl.cluster.resources import connected

    by_name = {cell.name: cell for cell in cells}
    arguments = {cell.name: (compute, cell.arguments) for cell in cells}
    with connected(address):
        for name, (result, seconds) in run_on_cluster(_timed, arguments, gpus_per_cell=gpus):
            yield by_name[name], result, seconds
