"""A storage with jobs in every state, a comparison and a curve, for views that show them without a cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import Failure, JobSpec, Result, Source, Weights
from rayctsl.jobs.files import EventLog
from rayctsl.storage import Storage
from serve.bench.instance import make_initialization
from serve.comparisons import Comparisons, new_comparison
from serve.jobs.rows import NewJob
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database

REASON = "training diverged by step 50: the loss is not finite; try a smaller learning rate"


def fill(folder: Path) -> dict[str, str]:
    """Jobs in every state, as a service leaves them; their ids by state."""
    card = make_initialization(folder / "storage")
    place = Path(card.storage.root) / "card.json"
    curve = {"loss_curve": [[step, 2.5 * 0.99**step] for step in range(0, 300, 10)]}
    place.write_text(json.dumps({**json.loads(place.read_text()), "metrics": curve}))
    source = Source(id=card.id, sha256=card.card.sha256, path=card.path)
    store, ids = JobStore(open_database(f"sqlite:///{folder}/storage/service/jobs.sqlite3")), {}
    for number, state in enumerate(("queued", "failed", "succeeded", "second")):
        config = FinetuneConfig(steps=60, batch_size=16, seeds=1)
        spec = JobSpec(
            dataset="stripes",
            data_root=str(folder / "data"),
            initialization=source,
            seed=number,
            compare_with_scratch=state != "second",
            config=config,
        )
        job, _ = store.create(NewJob({"label": f"a {state} job"}, spec, "x"), max_queued=9)
        ids[state] = job.id
        if state == "queued":
            continue
        log = EventLog(Storage(folder / "storage").inside(f"jobs/{job.id}"), 1)
        for step in range(3, 61 if state != "failed" else 22, 3):
            log.reach("initialization", step, 60 / (step + 30), step / 70)
            if state == "succeeded":
                log.reach("scratch", step, 60 / (step + 25), step / 90)
        store.change(job, status="starting", attempt=1, worker="w", started_at=time.time())
        running = store.get(job.id)
        assert running is not None
        if state == "failed":
            store.change(
                running, status="failed", error=Failure(code="bad_input", message=REASON), finished_at=time.time()
            )
            continue
        result = Result(
            accuracy=60 / 70,
            scratch_accuracy=60 / 90 if state == "succeeded" else None,
            loss=0.6,
            train_size=48,
            test_size=24,
            num_classes=3,
            dataset_checksum="0" * 64,
            weights=Weights(sha256="0" * 64, size=23_456),
            versions={},
        )
        store.change(running, status="succeeded", result=result, step=60, finished_at=time.time() + 9)
    store.close()
    jobs = {card.id: (ids["succeeded"],), "another": (ids["second"],)}
    comparison = new_comparison(None, "stripes", tuple(jobs), 1, jobs)
    Comparisons(Storage(folder / "storage")).save(comparison)
    return {**ids, "card": card.id, "comparison": comparison.id}
