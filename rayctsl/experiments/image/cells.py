"""The cells of an image experiment, stage by stage: tune, train, test.

A later stage's cells name what they need of the earlier ones (the chosen step size, the checksum of phi), so a change
anywhere makes exactly what depends on it be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayctsl.config import FinetuneConfig
from rayctsl.experiments.cells import Cell
from rayctsl.experiments.image.records import (
    Candidate,
    KeptPhi,
    NumberedRow,
    TestArguments,
    TrainArguments,
    TrainResult,
    TuneArguments,
    TuneResult,
)
from rayctsl.experiments.image.suite import Suite


@dataclass(frozen=True)
class Training:
    """One training: a method, K and a seed. Example: Training("shifting", 100, 0), cell train-shifting-k100-seed0"""

    method: str
    inner_steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"train-{self.method}-k{self.inner_steps}-seed{self.seed}"


def method_of(cell: str) -> str:
    """The method of a cell, from its name."""
    return cell.split("-")[1] if cell.count("-") > 1 else ""


def tune_cells(suite: Suite, root: str) -> list[Cell[TuneArguments]]:
    """Every method with every candidate of its search; a method with one candidate has nothing to search."""
    cells, tune = [], suite.tune
    validation = tune.validation.model_dump(mode="json")
    for method in suite.methods:
        candidates = suite.candidates(method)
        for candidate in candidates if len(candidates) > 1 and method not in suite.ablations else ():
            for number in range(tune.seeds):
                seed = tune.seed + number
                config = suite.config(method, candidate, trajectories=tune.trajectories, seed=seed, root=root)
                arguments = TuneArguments(
                    config=config.model_dump(mode="json"), validation=validation, seed=seed, gpus=suite.gpus
                )
                start = suite.start_config(method, trajectories=tune.trajectories, seed=seed, root=root)
                if start is not None:
                    arguments["start"] = start.model_dump(mode="json")
                cells.append(Cell(trial_name(method, candidate, number), arguments))
    return cells


def trial_name(method: str, candidate: Candidate, number: int = 0) -> str:
    """The cell of a candidate's trial; the first seed of a search goes without saying."""
    return f"tune-{method}-{label(candidate)}" + (f"-trial{number}" if number else "")


def label(candidate: Candidate) -> str:
    """A candidate in a file's name. Example: alpha0.05-beta0.1"""
    return "-".join(f"{key}{value}".replace("/", "_") for key, value in candidate.items())


def choose(suite: Suite, tuned: Mapping[str, TuneResult]) -> dict[str, Candidate]:
    """Every method's best candidate by accuracy on the held-out images of the meta-training tasks."""
    chosen = {}
    for method in suite.methods:
        candidates = suite.candidates(method)
        searched = suite.ablations.get(method, method)
        scores = {number: score(tuned, searched, candidate) for number, candidate in enumerate(candidates)}
        if len(candidates) > 1 and max(scores.values()) < 0:
            raise ValueError(f"every candidate of {method} diverged; give the suite smaller step sizes")
        chosen[method] = candidates[max(scores, key=scores.__getitem__)]
    return chosen


def score(tuned: Mapping[str, TuneResult], method: str, candidate: Candidate) -> float:
    """Validation accuracy in percent, the mean over the search's seeds; -1 when a trial diverged."""
    found = accuracies(tuned, method, candidate)
    return sum(found) / len(found) if found else -1.0


def accuracies(tuned: Mapping[str, TuneResult], method: str, candidate: Candidate) -> list[float]:
    """Validation accuracy of every seed of the search; none at all when a trial diverged."""
    found: list[float | None] = []
    while (name := trial_name(method, candidate, len(found))) in tuned:
        found.append(tuned[name].get("accuracy"))
    known = [float(accuracy) for accuracy in found if accuracy is not None]
    return known if len(known) == len(found) else []


def trainings(suite: Suite) -> list[Training]:
    """All trainings: every method and seed at the base's K, then the other values of K."""
    main = [Training(method, suite.inner_steps, seed) for method in suite.methods for seed in range(suite.seeds)]
    lengths = suite.lengths
    others = [
        Training(method, length, seed)
        for length in lengths.inner_steps
        for method in lengths.methods
        if method in suite.methods and length != suite.inner_steps
        for seed in range(lengths.seeds)
    ]
    return main + others


def train_cells(suite: Suite, chosen: Mapping[str, Candidate], root: str) -> list[Cell[TrainArguments]]:
    cells = []
    for training in trainings(suite):
        method, length = training.method, training.inner_steps
        config = suite.config(method, chosen[method], inner_steps=length, seed=training.seed, root=root)
        checkpoints = suite.checkpoint_steps(method) if length == suite.inner_steps else []
        arguments = TrainArguments(
            config=config.model_dump(mode="json"),
            checkpoints=checkpoints,
            gpus=suite.gpus,
            run=f"runs/{training.name.removeprefix('train-')}",
        )
        start = suite.start_config(method, inner_steps=length, seed=training.seed, root=root)
        if start is not None:
            arguments["start"] = start.model_dump(mode="json")
        cells.append(Cell(training.name, arguments))
    return cells


def test_cells(suite: Suite, trained: Mapping[str, TrainResult], root: str) -> list[Cell[TestArguments]]:
    """Fine-tunings of every phi on every target: the last of each training, and the checkpoints of some."""
    cells = []
    finetune = suite.config(next(iter(suite.methods)), {}).finetune
    for training in trainings(suite):
        result = trained[training.name]
        for point in result["points"]:
            last = is_final(result, point)
            if not last and training.seed >= suite.checkpoint_seeds:
                continue
            for recipe in _recipes(suite, finetune, last and training.inner_steps == suite.inner_steps):
                for target in suite.targets:
                    for repeat in range(finetune.seeds):
                        cells.append(_test_cell(suite, training, point, target, repeat, recipe, root))
    return cells


def _recipes(suite: Suite, finetune: FinetuneConfig, everything: bool) -> list[FinetuneConfig]:
    """The suite's recipe, and with `everything` its other numbers of images and of steps, one change at a time."""
    sizes, steps = (suite.sizes, suite.steps) if everything else ((), ())
    recipes = [finetune, *(finetune.model_copy(update={"train_size": size}) for size in sizes)]
    recipes += [finetune.model_copy(update={"steps": count}) for count in steps]
    return list(dict.fromkeys(recipes))


def is_final(result: TrainResult, point: KeptPhi) -> bool:
    """Whether a kept phi is the end of its training; one that diverged has none."""
    return not result.get("diverged") and point is result["points"][-1]


def _test_cell(
    suite: Suite, training: Training, point: KeptPhi, target: str, repeat: int, recipe: FinetuneConfig, root: str
) -> Cell[TestArguments]:
    # The number of a fine-tuning decides its head, batches and images: the same for every method.
    seed, size = training.seed * recipe.seeds + repeat, recipe.train_size
    name = training.name.replace("train-", "test-", 1) + f"-at{point['step']}-{target}-{seed}"
    arguments = TestArguments(
        initialization=point["path"],
        sha256=point["sha256"],
        target=target,
        seed=seed,
        finetune=recipe.model_dump(mode="json"),
        root=root,
        gpus=suite.gpus,
    )
    usual = suite.config(next(iter(suite.methods)), {}).finetune.steps
    name += (f"-n{size}" if size else "") + (f"-s{recipe.steps}" if recipe.steps != usual else "")
    return Cell(name, arguments)


def result_rows(
    suite: Suite, trained: Mapping[str, TrainResult], tested: Mapping[str, float], root: str
) -> list[NumberedRow]:
    """One row for every fine-tuning."""
    rows = []
    by_path = {
        point["path"]: (training, point) for training in trainings(suite) for point in trained[training.name]["points"]
    }
    for cell in test_cells(suite, trained, root):
        if cell.name not in tested:
            continue
        training, point = by_path[cell.arguments["initialization"]]
        rows.append(
            NumberedRow(
                method=training.method,
                inner_steps=training.inner_steps,
                seed=training.seed,
                spent=point["spent"]["inner"],
                final=is_final(trained[training.name], point),
                target=cell.arguments["target"],
                train_size=cell.arguments["finetune"]["train_size"] or 0,
                steps=cell.arguments["finetune"]["steps"],
                test_seed=cell.arguments["seed"],
                accuracy=tested[cell.name],
            )
        )
    return rows
