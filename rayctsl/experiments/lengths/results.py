"""The finished cells of several image experiments as one small file, from which tables and figures are made again.

Weights stay where they are; what is kept of a cell is what a table may ask for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from rayctsl.config import Config, build_config
from rayctsl.contract import JsonObject
from rayctsl.experiments.image.records import KeptPhi, TestRow
from rayctsl.methods import Step, build_method
from rayctsl.storage import Storage

COLLECTS = "python -m rayctsl.experiments lengths --report --out DIR"
TRAINING = re.compile(r"(?P<method>[a-z_+]+)-k(?P<inner_steps>[0-9]+)-seed(?P<seed>[0-9]+)")


class SearchTrial(TypedDict):
    """One candidate of a search."""

    suite: str
    method: str
    alpha: float
    beta: float
    accuracy: float | None  # on held-out images of the sources; None: it diverged


class Spent(TypedDict):
    """What one training took."""

    suite: str
    method: str
    inner_steps: int
    seed: int
    alpha: float
    beta: float
    tasks: float  # side by side; the mean over its steps where a warm start has trained on one
    meta_updates: int
    gradients: dict[str, int]  # inner, held_out, hessian, over all tasks
    seconds: float  # in one process, with whatever else the machine did


class Test(TestRow):
    """One fine-tuning: a row of every table."""

    suite: str


class Results(TypedDict):
    search: list[SearchTrial]
    trainings: list[Spent]
    tests: list[Test]


def collect(folders: Mapping[str, Storage]) -> Results:
    """Everything that the cells of some experiments say, by the name of their suite."""
    results = Results(search=[], trainings=[], tests=[])
    for suite, storage in folders.items():
        cells = {name: _read(storage, name) for name in storage.names("cells") if name.endswith(".json")}
        trained = [cell for name, cell in cells.items() if name.startswith("train-") and cell["result"]["points"]]
        results["search"] += [_trial(suite, name, cell) for name, cell in cells.items() if name.startswith("tune-")]
        results["trainings"] += [_training(suite, cell) for cell in trained]
        points = {point["path"]: point for cell in trained for point in cell["result"]["points"]}
        finished = {cell["result"]["points"][-1]["path"] for cell in trained if not cell["result"].get("diverged")}
        for name, cell in cells.items():
            path = cell["arguments"].get("initialization")
            if name.startswith("test-") and path in points:
                results["tests"].append(_test(suite, cell, points[path], path in finished))
    return results


def read_results(path: Path) -> Results:
    """A file that was collected before."""
    try:
        results: Results = json.loads(path.read_text())
        return Results(search=results["search"], trainings=results["trainings"], tests=results["tests"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} does not hold collected results; {COLLECTS} writes such a file") from None


def _read(storage: Storage, name: str) -> JsonObject:
    cell: JsonObject = json.loads(storage.read(f"cells/{name}"))
    return cell


def _trial(suite: str, name: str, cell: JsonObject) -> SearchTrial:
    config = cell["arguments"]["config"]
    alpha, beta = config["inner"]["alpha"], config["method"]["beta"]
    return SearchTrial(
        suite=suite, method=name.split("-")[1], alpha=alpha, beta=beta, accuracy=cell["result"]["accuracy"]
    )


def _training(suite: str, cell: JsonObject) -> Spent:
    config, gradients = build_config(cell["arguments"]["config"]), cell["result"]["points"][-1]["spent"]
    assert config.method.beta is not None
    method, inner_steps, seed = _named(cell["arguments"]["run"])
    start = cell["arguments"].get("start")
    steps = config.total_steps + (build_config(start).total_steps if start else 0)
    return Spent(
        suite=suite,
        method=method,
        inner_steps=inner_steps,
        seed=seed,
        alpha=config.inner.alpha,
        beta=config.method.beta,
        tasks=gradients["inner"] / max(steps, 1),
        meta_updates=count_meta_updates(config) if config.total_steps else 0,
        gradients=gradients,
        seconds=round(cell["seconds"], 1),
    )


def count_meta_updates(config: Config) -> int:
    """How often phi moves in a run, which is how often the tasks wait for each other."""
    method = build_method(config.method, config.seed)
    steps = [Step(m=0, k=k, K=config.inner_steps) for k in range(1, config.inner_steps + 1)]
    return config.trajectories * sum(method.updates_at(step) for step in steps)


def _test(suite: str, cell: JsonObject, point: KeptPhi, final: bool) -> Test:
    arguments = cell["arguments"]
    method, inner_steps, seed = _named(arguments["initialization"].rpartition("/")[0])
    return Test(
        suite=suite,
        method=method,
        inner_steps=inner_steps,
        seed=seed,
        spent=point["spent"]["inner"],
        final=final,
        target=arguments["target"].partition("@")[0],
        train_size=arguments["finetune"]["train_size"] or 0,
        steps=arguments["finetune"]["steps"],
        accuracy=cell["result"],
    )


def _named(run: str) -> tuple[str, int, int]:
    """Method, K and seed of a run's folder. Example: runs/shifting-k100-seed3"""
    found = TRAINING.fullmatch(run.rpartition("/")[2])
    assert found is not None, run
    return found["method"], int(found["inner_steps"]), int(found["seed"])
