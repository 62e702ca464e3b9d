"""Documents between service and worker: what the first release wrote can be read, newer ones are refused."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from rayctsl.config import FinetuneConfig, RecipeConfig
from rayctsl.contract import Contract
from rayctsl.jobs.contracts import Assignment, Heartbeat, Outcome, PointReached, StepProgress, read_event, read_spec
from rayctsl.jobs.files import EventLog, read_document, read_events
from rayctsl.jobs.flags import add_recipe_flags, given_recipe
from rayctsl.storage import Storage

# As the first release wrote them: without a version, with every field of the recipe as it was then.
OLD_SPEC = {
    "dataset": "digits",
    "data_root": "/data",
    "initialization": {"id": "x", "sha256": "0" * 64, "path": "/storage/x"},
    "seed": 1,
    "compare_with_scratch": True,
    "config": {
        "optimizer": "nesterov",
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "adam_betas": [0.9, 0.999],
        "adam_epsilon": 1e-8,
        "alpha": 0.1,
        "steps": 20,
        "decay_at": [0.4, 0.7, 0.9],
        "decay": 0.2,
        "batch_size": 128,
        "train_size": None,
        "crop_padding": None,
        "flip": True,
        "seeds": 1,
        "evaluate_every": 1,
    },
}
OLD_FILES: list[tuple[type[Contract], dict]] = [
    (Assignment, {"job": "ft-1", "attempt": 2}),
    (Assignment, {"job": None}),
    (Heartbeat, {"count": 3, "pid": 4711}),
    (StepProgress, {"step": 7, "at": 1.5}),
    (Outcome, {"status": "cancelled", "attempt": 1, "finished_at": 2.0}),
    (Outcome, {"status": "failed", "error": {"code": "timeout", "message": "x"}, "attempt": 1, "finished_at": 2.0}),
]


def test_spec_of_the_first_release_is_read() -> None:
    spec = read_spec(json.dumps(OLD_SPEC).encode())
    assert spec.config == FinetuneConfig(steps=20, evaluate_every=1, seeds=1)
    assert read_spec(spec.to_bytes()) == spec


@pytest.mark.parametrize(("kind", "raw"), OLD_FILES)
def test_files_of_the_first_release_are_read(tmp_path: Path, kind: type[Contract], raw: dict) -> None:
    storage = Storage(tmp_path)
    storage.write("file", json.dumps(raw).encode())
    document = read_document(storage, "file", kind)
    assert document is not None
    assert {key: document.to_json()[key] for key in raw} == raw
    storage.write("file", json.dumps({**raw, "version": kind.CURRENT + 1}).encode())
    with pytest.raises(ValueError, match="newer rayctsl"):
        read_document(storage, "file", kind)
    assert read_document(storage, "nothing", kind) is None


def test_events_are_numbered_across_attempts_and_told_once(tmp_path: Path) -> None:
    job = Storage(tmp_path)
    old = {"id": 1, "type": "started", "at": 1.0, "steps": 9, "runs": ["initialization"]}
    job.write("attempt-1/events.jsonl", json.dumps(old).encode() + b"\n")
    log = EventLog(job, 2)
    log.resume(2, 4)
    log.reach("initialization", 5, 0.5, 0.25)
    log.reach("initialization", 5, 0.5, 0.25)
    events = read_events(job, 2)
    assert [(event.id, event.type) for event in events] == [(1, "started"), (2, "resumed"), (3, "point")]
    assert isinstance(events[2], PointReached)
    with pytest.raises(ValueError, match="unknown type 'party'"):
        read_event(b'{"type": "party"}')


def test_every_field_of_the_recipe_is_a_flag() -> None:
    parser = argparse.ArgumentParser()
    add_recipe_flags(parser)
    words = ["--steps", "7", "--alpha", "0.5", "--decay-at", "0.1,0.2", "--no-flip", "--optimizer", "adam"]
    given = given_recipe(parser.parse_args(words))
    assert given == {"steps": 7, "alpha": 0.5, "decay_at": (0.1, 0.2), "flip": False, "optimizer": "adam"}
    assert RecipeConfig(**given).steps == 7
    assert set(vars(parser.parse_args([]))) == set(RecipeConfig.model_fields)


def test_evaluations_cost_at_most_a_fifth_of_the_training() -> None:
    short = RecipeConfig(steps=20, batch_size=128)
    assert short.evaluation_period(500, points=20) == 7  # 500 / (0.2 * 3 * 128) = 6.5
    assert RecipeConfig(steps=1000).evaluation_period(500, points=20) == 50
    assert RecipeConfig(steps=1000, evaluate_every=3).evaluation_period(10**6) == 3
