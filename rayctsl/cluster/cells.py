"""Independent pieces of work, one Ray task each: fine-tunings, and the cells of an experiment's table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError

Result = TypeVar("Result")

ENDING_SECONDS = 0.5  # for cells that end with the one that failed


def run_cells(
    function: Callable[..., Result],
    cells: Mapping[str, tuple[Any, ...]],
    cpus_per_cell: float = 1.0,
    gpus_per_cell: float = 0.0,
) -> Iterator[tuple[str, Result]]:
    """Run `function(*arguments)` for every named cell, as many at once as the cluster holds; yields as they finish.

    A cell is a pure function of its arguments, so one whose worker dies is simply run again. An error inside a cell
    ends the whole; one that says what the user can do about it (ValueError, OSError) as itself.
    """
    _check_room(cpus_per_cell, gpus_per_cell)
    remote = ray.remote(function).options(num_cpus=cpus_per_cell, num_gpus=gpus_per_cell, max_retries=3)
    running = {remote.remote(*arguments): name for name, arguments in cells.items()}
    try:
        while running:
            done, _ = ray.wait(list(running), num_returns=1)
            name = running.pop(done[0])
            try:
                yield name, ray.get(done[0])
            except RayTaskError as error:
                raise (error.cause if isinstance(error.cause, (ValueError, OSError)) else error) from None
    finally:
        _cancel(list(running))


def _cancel(running: list[Any]) -> None:
    """End what still runs.

    What fails, fails often together, and Ray can end the driver when a task is cancelled that is just ending (a check
    in its task manager; ray-project/ray#54798 mends one of the ways there). So those may end first.
    """
    if running:
        for reference in ray.wait(running, num_returns=len(running), timeout=ENDING_SECONDS)[1]:
            ray.cancel(reference, force=True)


def _check_room(cpus: float, gpus: float) -> None:
    """Refuse a cell that fits on no node: Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        most = max((node.get("GPU", 0) for node in nodes), default=0)
        raise ValueError(
            f"a cell needs {cpus:g} CPU and {gpus:g} GPU on one node; the most GPUs on a node are {most:g}"
        )
