"""The proof that no job is lost: clients submit while the service, its workers, Ray's head and the disk fail at random.

At the end every accepted job must have exactly one terminal state and one result, nothing may exist that nobody was
told of, and the queue's bound must have held. Submissions carry an Idempotency-Key, so a client that lost the answer
asks again without making a second job.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from sqlalchemy.exc import SQLAlchemyError

from rayctsl.jobs.job import RESULT
from serve.bench.faults import Faults
from serve.bench.instance import DATASET, Instance, make_dataset, make_initialization
from serve.jobs.rows import TERMINAL, JobRow
from serve.jobs.store import JobStore
from serve.jobs.tables import open_database

MAY_BE_ASKED_AGAIN = (429, 503, 507)
MAX_RUNNING = 2


def prove(
    jobs: int,
    clients: int,
    faults: int,
    *,
    max_queued: int,
    address: str | None = None,
    seed: int = 0,
    seconds: float = 1800.0,
    folder: Path | None = None,
    small_disk: Path | None = None,
) -> dict[str, object]:
    """Run the proof and return its figures; AssertionError says what was broken.

    Args:
        faults: spread over the jobs; the kind of each is drawn at random.
        small_disk: an empty disk of some 100 MB for the storage, which is then filled up now and then.
    """
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        place = folder or Path(name)
        make_dataset(place / "data")
        if small_disk is not None:
            (place / "storage").symlink_to(small_disk)
        make_initialization(place / "storage")
        options = ["--max-queued", str(max_queued), "--max-running", str(MAX_RUNNING), "--job-cpus", "0.1"]
        service = Instance(place, *options, *(["--address", address] if address else []))
        service.start()
        queue = Clients(service, jobs, clients, seed)
        trouble = Faults(service, seed, can_fill=small_disk is not None)
        try:
            started = time.monotonic()
            found, largest = _disturb(queue, trouble, faults, seconds)
            # Jobs whose worker has died wait again, beside those that fill the queue.
            assert largest <= max_queued + MAX_RUNNING, f"{largest} jobs waited, more than {max_queued} may"
            return {
                **_verify(service, queue.accepted, found, jobs),
                "clients": clients,
                "faults": dict(trouble.struck),
                "answers": dict(queue.answers),
                "largest_queue": largest,
                "max_queued": max_queued,
                "seconds": round(time.monotonic() - started, 1),
            }
        finally:
            queue.done.set()
            trouble.end()
            service.stop()


class Clients:
    """Ask for jobs, each again and again until it is accepted."""

    def __init__(self, service: Instance, jobs: int, clients: int, seed: int):
        self.service, self.jobs, self.seed = service, jobs, seed
        self.accepted: dict[str, str] = {}  # job id by key
        self.answers: Counter[str] = Counter()
        self.done = threading.Event()
        self._left, self._lock = iter(range(jobs)), threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def are_busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _ask(self, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
        with httpx.Client(base_url=self.service.url, timeout=10.0, trust_env=False) as http:
            while not self.done.is_set():
                with self._lock:
                    turn = next(self._left, None)
                if turn is None:
                    return
                body = {"dataset": DATASET, "steps": rng.randint(1, 3), "batch_size": 8, "seed": turn}
                self._insist(http, f"proof-{self.seed}-{turn}", body, rng)

    def _insist(self, http: httpx.Client, key: str, body: dict[str, object], rng: random.Random) -> None:
        while key not in self.accepted and not self.done.is_set():
            try:
                answer = http.post("/finetune", json=body, headers={"idempotency-key": key})
            except httpx.TransportError:
                self.answers["no answer"] += 1
                self.done.wait(0.2)
                continue
            self.answers[str(answer.status_code)] += 1
            if answer.status_code == 202:
                self.accepted[key] = answer.json()["id"]
            else:
                assert answer.status_code in MAY_BE_ASKED_AGAIN, answer.text
                self.done.wait(rng.uniform(0.1, 0.5))


def _disturb(queue: Clients, trouble: Faults, faults: int, seconds: float) -> tuple[list[JobRow], int]:
    """Let faults strike while the jobs run; all jobs at the end, and how many waited at most."""
    struck, largest, deadline = 0, 0, time.monotonic() + seconds
    store = JobStore(open_database(f"sqlite:///{queue.service.storage / 'service' / 'jobs.sqlite3'}"))
    queue.start()
    try:
        while True:
            status = _counts(store)
            largest = max(largest, status.get("queued", 0))
            ended = sum(status.get(name, 0) for name in TERMINAL)
            trouble.tick()
            if struck < faults and ended >= (struck + 0.5) * queue.jobs / faults:
                struck += trouble.strike()
                print(f"{ended} of {queue.jobs} jobs have ended, faults: {dict(trouble.struck)}", file=sys.stderr)
            if ended >= queue.jobs and not queue.are_busy:
                return store.page(10 * queue.jobs), largest
            assert time.monotonic() < deadline, f"not done after {seconds:.0f} s: {status}"
            time.sleep(0.02)
    finally:
        store.close()


def _counts(store: JobStore) -> dict[str, int]:
    """With the disk full even a reader of the database may be refused for a moment."""
    while True:
        try:
            return store.counts()
        except SQLAlchemyError:
            time.sleep(0.2)


def _verify(service: Instance, accepted: dict[str, str], jobs: list[JobRow], wanted: int) -> dict[str, object]:
    assert len(accepted) == len(set(accepted.values())) == wanted, "a key has no job or two keys share one"
    assert {job.id for job in jobs} == set(accepted.values()), "a job is lost, or one exists that nobody was told of"
    states = Counter(job.status for job in jobs)
    assert set(states) == {"succeeded"}, f"jobs ended as {dict(states)}: {[job.error for job in jobs if job.error]}"
    for job in jobs:
        # An attempt that was believed dead may have ended after all: its result is beside the one that counts.
        result = service.storage / "jobs" / job.id / f"attempt-{job.attempt}" / RESULT
        assert result.exists(), f"{job.id}: no result"
    with httpx.Client(base_url=service.url, trust_env=False, timeout=30.0) as http:
        for job in jobs:
            shown = http.get(f"/finetune/{job.id}").json()
            assert shown["status"] == job.status, "the service tells another story than its store"
    attempts = Counter(job.attempt for job in jobs)
    return {"jobs": len(jobs), "succeeded": states["succeeded"], "attempts": dict(attempts)}
