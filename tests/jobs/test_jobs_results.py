"""What a job's result says: the numbers of its own runs, with the seed, the start and the images asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayctsl.config import FinetuneConfig
from rayctsl.data.library import open_dataset
from rayctsl.jobs.contracts import JobEvent, Outcome, PointReached, Result
from rayctsl.jobs.files import PROGRESS, read_events
from rayctsl.jobs.job import Pace, _Watch, run_job
from rayctsl.learning.finetune import Finetuner
from rayctsl.learning.start import start_from
from rayctsl.registry import Initialization
from rayctsl.storage import Storage
from serve.bench.instance import DATASET, make_dataset, make_initialization

RECIPE = FinetuneConfig(steps=4, batch_size=8, evaluate_every=2, seeds=1, train_size=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder)
    return folder


@pytest.fixture(scope="module")
def initialization(tmp_path_factory: pytest.TempPathFactory) -> Initialization:
    return make_initialization(tmp_path_factory.mktemp("storage"))


@pytest.fixture
def run(data: Path, initialization: Initialization, tmp_path: Path) -> Any:
    """Runs a job of a recipe from seed 3; returns how it ended and its events."""

    def run(recipe: FinetuneConfig) -> tuple[Outcome, list[JobEvent]]:
        spec = {
            "dataset": DATASET,
            "data_root": str(data),
            "initialization": {
                "id": initialization.id,
                "sha256": initialization.card.sha256,
                "path": str(initialization.storage),
            },
            "seed": 3,
            "compare_with_scratch": True,
            "config": recipe.model_dump(mode="json"),
        }
        job = Storage(tmp_path)
        job.write("spec.json", json.dumps(spec).encode())
        return run_job(job, 1), read_events(job, 1)

    return run


def test_a_jobs_numbers_are_those_of_its_own_runs_at_their_ends(run: Any) -> None:
    outcome, events = run(RECIPE)
    result: Result = outcome.result
    ends = {event.run: event for event in events if isinstance(event, PointReached) and event.step == 4}
    assert (result.accuracy, result.loss) == (ends["initialization"].accuracy, ends["initialization"].loss)
    assert result.scratch_accuracy == ends["scratch"].accuracy
    assert ends["scratch"].loss != result.loss, "what it is compared with begins with other weights"
    assert (result.train_size, result.test_size) == (20, 24)


def test_a_job_computes_what_its_seed_gives_elsewhere(run: Any, data: Path, initialization: Initialization) -> None:
    outcome, _ = run(RECIPE)
    start = start_from(initialization)
    tuner = Finetuner(start.build(3, 3), open_dataset(DATASET, str(data)), RECIPE, seed=3, phi=start.phi)
    tuner.run(4)
    assert (outcome.result.loss, outcome.result.accuracy) == (tuner.curve[-1].loss, tuner.curve[-1].accuracy)


def test_a_job_that_diverges_says_so_and_what_to_do(run: Any) -> None:
    outcome, _ = run(RECIPE.model_copy(update={"alpha": 1e12, "evaluate_every": 4}))
    assert (outcome.status, outcome.error.code) == ("failed", "bad_input")
    said = "training diverged by step 4: the loss is not finite; try a smaller learning rate"
    assert outcome.error.message == said


def test_progress_is_that_of_the_run_that_is_behind(tmp_path: Path) -> None:
    here = Storage(tmp_path)
    runs: Any = {"initialization": SimpleNamespace(step=4), "scratch": SimpleNamespace(step=3)}
    _Watch(here, here, Pace(tick=0)).after_step(runs)
    assert json.loads(here.read(PROGRESS))["step"] == 3
