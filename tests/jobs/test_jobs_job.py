"""Jobs as folders: run, cancel, fail, resume; and the worker that takes them one after the other."""

from __future__ import annotations

import errno
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import PointReached
from rayctsl.jobs.files import CHECKPOINT, attempt_folder, read_events
from rayctsl.jobs.job import Pace, _failure, _latest_checkpoint, _Watch, run_job
from rayctsl.jobs.model import Finetuned
from rayctsl.jobs.worker import main, run_worker
from rayctsl.registry import list_initializations
from rayctsl.storage import Storage
from serve.bench.instance import DATASET, make_dataset, make_initialization


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    make_dataset(folder / "data")
    make_initialization(folder / "storage")
    return folder


def new_job(world: Path, name: str, **change: Any) -> Storage:
    (initialization,) = list_initializations(str(world / "storage"))
    config = FinetuneConfig(steps=12, batch_size=16, evaluate_every=4, seeds=1)
    spec = {
        "dataset": DATASET,
        "data_root": str(world / "data"),
        "initialization": {
            "id": initialization.id,
            "sha256": initialization.card.sha256,
            "path": str(initialization.storage),
        },
        "seed": 3,
        "compare_with_scratch": False,
        "config": config.model_dump(mode="json"),
        **change,
    }
    job = Storage(world / "storage" / "jobs" / name)
    job.write("spec.json", json.dumps(spec).encode())
    return job


def test_job_leaves_result_model_and_events(world: Path) -> None:
    job = new_job(world, "whole", compare_with_scratch=True)
    outcome = run_job(job, 1)
    assert outcome.status == "succeeded"
    assert json.loads(job.read("attempt-1/result.json")) == outcome.to_json()
    events = read_events(job, 1)
    assert [event.id for event in events] == list(range(1, 8))
    points = [(event.run, event.step) for event in events if isinstance(event, PointReached)]
    assert points == [(run, step) for step in (4, 8, 12) for run in ("initialization", "scratch")]
    model = Finetuned.load(job.read("attempt-1/model.safetensors"))
    assert model.facts.class_names == ("top", "middle", "bottom")
    written = (world / "storage" / "jobs" / "whole" / "attempt-1" / "model.safetensors").stat().st_mtime_ns
    assert run_job(job, 1) == outcome
    again = (world / "storage" / "jobs" / "whole" / "attempt-1" / "model.safetensors").stat().st_mtime_ns
    assert again == written, "an ended attempt was run again"


def test_interrupted_job_ends_as_an_undisturbed_one(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = new_job(world, "undisturbed", compare_with_scratch=True)
    expected = run_job(whole, 1).result

    job = new_job(world, "interrupted", compare_with_scratch=True)
    from rayctsl.learning.finetune import Finetuner

    taken = 0
    step = Finetuner._train_step

    def stumble(self: Finetuner) -> float:
        nonlocal taken
        taken += 1
        if taken == 15:
            raise OSError("the disk is gone")
        return step(self)

    monkeypatch.setattr(Finetuner, "_train_step", stumble)
    with pytest.raises(OSError, match="disk"):
        run_job(job, 1, Pace(tick=0, checkpoint=0))
    assert not job.exists("attempt-1/result.json")
    assert job.exists(f"attempt-1/{CHECKPOINT}")
    assert run_job(job, 2, Pace(tick=0, checkpoint=0)).result == expected  # the weights' checksum is part of it
    assert not any(job.exists(f"attempt-{number}/{CHECKPOINT}") for number in (1, 2)), "nobody goes on from them"
    events = read_events(job, 2)
    points = [(event.run, event.step) for event in events if isinstance(event, PointReached)]
    assert points == [(run, step) for step in (4, 8, 12) for run in ("initialization", "scratch")]
    assert [event.type for event in events].count("resumed") == 1
    assert taken == 24 + 1  # the step that failed was taken again, the fourteen before it were not


def test_checkpoints_are_written_at_their_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, now, written = Storage(tmp_path), [0], list[int]()
    monkeypatch.setattr("rayctsl.jobs.job.time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = _Watch(here, here, Pace(tick=1e9, checkpoint=30))
    for now[0] in range(1, 100):
        watch.after_step({})
        if here.exists(CHECKPOINT):
            written.append(now[0])
            here.delete(CHECKPOINT)
    assert written == [30, 60, 90]


def test_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        saved = save({"step": torch.tensor([attempt])}) if attempt < 3 else b"cut off"
        Storage(tmp_path).write(f"attempt-{attempt}/{CHECKPOINT}", saved)
    found = _latest_checkpoint(Storage(tmp_path), 4)
    assert found is not None
    assert found["step"].item() == 2
    assert _latest_checkpoint(Storage(tmp_path), 1) is None


def test_points_that_an_earlier_attempt_told_of_are_not_told_twice(world: Path) -> None:
    job = new_job(world, "told")
    run_job(job, 1)
    again = run_job(job, 2)  # no checkpoint: from the start, but its listeners have heard everything
    assert again.status == "succeeded"
    assert read_events(job, 2) == read_events(job, 1)


def test_raised_flag_cancels(world: Path) -> None:
    job = new_job(world, "flag")
    job.write("cancel", b"")
    assert run_job(job, 1).status == "cancelled"
    assert not job.exists("attempt-1/model.safetensors")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"dataset": "stripe"}, "bad_input", "did you mean 'stripes'"),
        ({"initialization": {"id": "x", "path": "/nowhere", "sha256": ""}}, "bad_input", "x is gone from the storage"),
        ({"seed": None}, "bad_input", "the job's spec is damaged: seed"),
        ({"version": 99}, "bad_input", "newer rayctsl"),
    ],
)
def test_job_that_cannot_run_says_why(world: Path, change: dict, code: str, words: str) -> None:
    job = new_job(world, f"bad-{code}-{len(words)}", **change)
    outcome = run_job(job, 1)
    assert outcome.error is not None
    assert (outcome.status, outcome.error.code) == ("failed", code)
    assert words in outcome.error.message
    assert "\n" not in outcome.error.message
    assert str(world) not in outcome.error.message


def test_a_failure_says_nothing_of_this_machines_folders() -> None:
    told = _failure(ValueError("cannot read /data/lab-3/pets/train.arrow: 3 of 12/48 rows, see s3://bucket/key"))
    assert told.message == "cannot read …: 3 of 12/48 rows, see …"
    told = _failure(TypeError("a mistake of ours, with whatever it had in its hands"))
    assert (told.code, told.message) == ("internal", "TypeError while training; the log of the job's worker says more")


def test_changed_initialization_is_refused(world: Path) -> None:
    (initialization,) = list_initializations(str(world / "storage"))
    wrong = {"id": initialization.id, "path": str(initialization.storage), "sha256": "0" * 64}
    outcome = run_job(new_job(world, "changed", initialization=wrong), 1)
    assert outcome.error is not None
    assert "has changed" in outcome.error.message


def test_time_limit(world: Path) -> None:
    outcome = run_job(new_job(world, "slow"), 1, Pace(tick=0, limit=0))
    assert outcome.error is not None
    assert outcome.error.code == "timeout"


def test_worker_runs_job_after_job_shows_life_and_leaves(world: Path) -> None:
    storage = Storage(world / "storage")
    jobs = [new_job(world, f"queue-{number}") for number in range(2)]
    worker = threading.Thread(
        target=run_worker, args=(storage, "w1"), kwargs={"idle_seconds": 60, "poll_seconds": 0.01}
    )
    worker.start()
    for number, job in enumerate(jobs):
        storage.write("workers/w1/job.json", json.dumps({"job": f"queue-{number}", "attempt": 1}).encode())
        deadline = time.monotonic() + 60
        while not job.exists(f"{attempt_folder(1)}/result.json"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert json.loads(storage.read("workers/w1/alive.json"))["count"] >= 1
    storage.write("workers/w1/job.json", b'{"job": null}')
    worker.join(30)
    assert not worker.is_alive()


def test_a_worker_that_has_done_its_job_is_idle(world: Path) -> None:
    storage, job = Storage(world / "storage"), new_job(world, "only")
    storage.write("workers/w3/job.json", b'{"job": "only", "attempt": 1}')
    worker = threading.Thread(
        target=run_worker, args=(storage, "w3"), kwargs={"idle_seconds": 0.2, "poll_seconds": 0.01}
    )
    worker.start()
    worker.join(60)
    assert not worker.is_alive(), "it takes the same job again and again"
    assert job.exists(f"{attempt_folder(1)}/result.json")


def test_idle_worker_leaves(world: Path) -> None:
    assert main(["--storage", str(world / "storage"), "--worker", "w2", "--idle-seconds", "0.05"]) == 0


def test_a_worker_does_as_the_operator_says(world: Path, monkeypatch: pytest.MonkeyPatch, strict_device: str) -> None:
    """How often a job is kept, how long it may take, on how many threads, on which device."""
    asked: list[tuple[Pace, str]] = []
    monkeypatch.setattr("rayctsl.jobs.job.run_job", lambda job, attempt, pace, device: asked.append((pace, device)))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: threads.append(number))
    threads: list[int] = []
    Storage(world / "storage").write("workers/w9/job.json", b'{"job": "any", "attempt": 1}')
    words = ["--storage", str(world / "storage"), "--worker", "w9", "--idle-seconds", "0.05"]
    words += ["--checkpoint-seconds", "7", "--limit-seconds", "99", "--threads", "3"]
    assert main(words) == 0, "it has reserved no GPU, and takes nobody else's"
    assert main([*words, "--gpus", "0.5"]) == 0
    assert asked == [(Pace(0.5, 7.0, 99.0), "cpu"), (Pace(0.5, 7.0, 99.0), strict_device)]
    assert threads == [3, 3]


def test_a_worker_whose_storage_is_gone_ends(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room on the disk comes back; what else ails it, a new worker may be spared."""

    def fail(*parts: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rayctsl.jobs.job.run_job", fail)
    Storage(world / "storage").write("workers/w8/job.json", b'{"job": "any", "attempt": 1}')
    with pytest.raises(OSError, match="Input/output error"):
        run_worker(Storage(world / "storage"), "w8", idle_seconds=0.05, full_seconds=0.01)


def test_model_file_of_another_kind_is_refused() -> None:
    import pickle

    from safetensors.numpy import save

    for data in (b"", b"\x00" * 7, pickle.dumps(print), save({"x": np.zeros(3)}), b"\xff" * 100):
        with pytest.raises(ValueError, match="not a fine-tuned model"):
            Finetuned.load(data)


def test_worker_waits_for_room_on_the_disk(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, job = Storage(world / "storage"), new_job(world, "full")
    storage.write("workers/w2/job.json", b'{"job": "full", "attempt": 1}')
    write, refused = Storage.write, []

    def when_there_is_room(self: Storage, name: str, data: bytes) -> None:
        if name == "result.json" and len(refused) < 3:
            refused.append(name)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, data)
        if name == "result.json":
            write(storage, "workers/w2/job.json", b'{"job": null}')

    monkeypatch.setattr(Storage, "write", when_there_is_room)
    run_worker(storage, "w2", idle_seconds=60, poll_seconds=0.01, full_seconds=0.01)
    assert len(refused) == 3
    assert json.loads(job.read("attempt-1/result.json"))["status"] == "succeeded"
