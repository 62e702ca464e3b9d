"""The proof that no job is lost: clients submit while the service, its workers, Ray's head and the disk fail at random.

At the end every accepted job must have exactly one terminal state and one result, nothing may exist that nobody was
told of, and the queue's bound must have held. Submissions carry an Idempotency-Key, so a client that lost the answer
asks again without making a second job.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.exc import SQLAlchemyError

from rayctsl.jobs.job import RESULT
from serve.bench.faults import Faults
from serve.bench.instance import DATASET, Instance, make_dataset, make_initialization
from serve.jobs.rows import TERMINAL
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database


def prove(
    num_jobs: int,
    num_clients: int,
    num_kills: int,
    *,
    max_queued: int,
    address: str | None = None,
    seed: int = 0,
    seconds: float = 1800.0,
    folder: Path | None = None,
    small_disk: Path | None = None,
) -> dict[str, Any]:
    """Run the proof and return its figures; AssertionError says what was broken.

    Args:
        num_kills: faults, spread over the jobs; the kind of each is drawn at random.
        small_disk: an empty disk of some 100 MB for the storage, which is then filled up now and then.
    """
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        place = folder or Path(name)
        make_dataset(place / "data")
        if small_disk is not None:
            (place / "storage").symlink_to(small_disk)
        make_initialization(place / "storage")
        options = ["--max-queued", str(max_queued), "--max-running", "2", "--job-cpus", "0.1"]
        service = Instance(place, *options, *(["--address", address] if address else []))
        service.start()
        try:
            return _run(service, num_jobs, num_clients, num_kills, max_queued, seed, seconds, small_disk is not None)
        finally:
            service.stop()


def _run(
    service: Instance,
    num_jobs: int,
    num_clients: int,
    num_kills: int,
    max_queued: int,
    seed: int,
    seconds: float,
    can_fill: bool,
) -> dict[str, Any]:
    started = time.monotonic()
    accepted: dict[str, str] = {}  # job id by key
    counts: Counter[str] = Counter()
    largest, lock, done = 0, threading.Lock(), threading.Event()
    left = iter(range(num_jobs))

    def client(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        with httpx.Client(base_url=service.url, timeout=10.0, trust_env=False) as http:
            while not done.is_set():
                with lock:
                    turn = next(left, None)
                if turn is None:
                    return
                key = f"proof-{seed}-{turn}"
                body = {"dataset": DATASET, "steps": rng.randint(1, 3), "batch_size": 8, "seed": turn}
                while key not in accepted and not done.is_set():
                    try:
                        answer = http.post("/finetune", json=body, headers={"idempotency-key": key})
                    except httpx.TransportError:
                        counts["no answer"] += 1
                        time.sleep(0.2)
                        continue
                    counts[str(answer.status_code)] += 1
                    if answer.status_code == 202:
                        accepted[key] = answer.json()["id"]
                    else:
                        assert answer.status_code in (429, 503, 507), answer.text
                        time.sleep(rng.uniform(0.1, 0.5))

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(num_clients)]
    for thread in threads:
        thread.start()
    store = JobStore(open_database(f"sqlite:///{service.storage / 'service' / 'jobs.sqlite3'}"))
    kills, faults = 0, Faults(service, seed, can_fill)
    try:
        while True:
            status = _counts(store)
            largest = max(largest, status.get("queued", 0))
            ended = sum(status.get(name, 0) for name in TERMINAL)
            faults.tick()
            if kills < num_kills and ended >= (kills + 0.5) * num_jobs / num_kills:
                faults.strike()
                kills += 1
            if ended >= num_jobs and not any(thread.is_alive() for thread in threads):
                break
            assert time.monotonic() - started < seconds, f"not done after {seconds:.0f} s: {status}"
            time.sleep(0.02)
        jobs = store.page(10 * num_jobs)
        return {
            **_verify(service, accepted, jobs, num_jobs, largest, max_queued),
            "clients": num_clients,
            "faults": dict(faults.struck),
            "answers": dict(counts),
            "largest_queue": largest,
            "max_queued": max_queued,
            "seconds": round(time.monotonic() - started, 1),
        }
    finally:
        done.set()
        faults.end()
        store.close()


def _counts(store: JobStore) -> dict[str, int]:
    """With the disk full even a reader of the database may be refused for a moment."""
    while True:
        try:
            return store.counts()
        except SQLAlchemyError:
            time.sleep(0.2)


def _verify(
    service: Instance, accepted: dict[str, str], jobs: list[Any], num_jobs: int, largest: int, max_queued: int
) -> dict[str, Any]:
    assert len(accepted) == len(set(accepted.values())) == num_jobs, "a key has no job or two keys share one"
    assert {job.id for job in jobs} == set(accepted.values()), "a job is lost, or one exists that nobody was told of"
    states = Counter(job.status for job in jobs)
    assert set(states) == {"succeeded"}, f"jobs ended as {dict(states)}"
    assert largest <= max_queued, f"{largest} jobs waited, more than {max_queued}"
    results = 0
    for job in jobs:
        found = list((service.storage / "jobs" / job.id).glob(f"attempt-*/{RESULT}"))
        # An attempt that was believed dead may have ended after all: its result is beside the one that counts.
        assert (service.storage / "jobs" / job.id / f"attempt-{job.attempt}" / RESULT) in found, f"{job.id}: no result"
        results += 1
    with httpx.Client(base_url=service.url, trust_env=False, timeout=30.0) as http:
        for job in jobs:
            shown = http.get(f"/finetune/{job.id}").json()
            assert shown["status"] == job.status, "the service tells another story than its store"
    attempts = Counter(job.attempt for job in jobs)
    return {"jobs": len(jobs), "succeeded": states["succeeded"], "results": results, "attempts": dict(attempts)}
