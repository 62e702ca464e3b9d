"""The job store by itself: bounds, keys and compare-and-set under many threads, and any order of events."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import delete

from rayctsl.config import FinetuneConfig
from rayctsl.jobs.contracts import STATUSES, JobSpec, Source
from serve.jobs.rows import ACTIVE, TERMINAL, JobRow, KeyReusedError, NewJob, QueueFullError, Slot
from serve.jobs.store import JobStore
from serve.jobs.tables import JOBS, SLOTS, open_database

REQUEST = {"dataset": "stripes", "label": "ü\x00"}
SPEC = JobSpec(
    dataset="stripes",
    data_root="/data",
    initialization=Source(id="x", sha256="", path="/x"),
    seed=0,
    compare_with_scratch=False,
    config=FinetuneConfig(steps=1, seeds=1),
)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobStore]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'jobs.sqlite3'}" if sqlite else request.getfixturevalue("postgres")
    engine = open_database(url)
    with engine.begin() as connection:
        connection.execute(delete(JOBS))
        connection.execute(delete(SLOTS))
    opened = JobStore(engine)
    yield opened
    opened.close()


def add(store: JobStore, key: str | None = None, fingerprint: str = "a", max_queued: int = 1000) -> JobRow:
    return store.create(NewJob(REQUEST, SPEC, fingerprint, key), max_queued=max_queued)[0]


def test_job_is_read_back_as_it_was_accepted(store: JobStore) -> None:
    job = add(store)
    assert store.get(job.id) == job
    assert (job.status, job.label, job.spec, job.attempt, job.step) == ("queued", REQUEST["label"], SPEC, 0, 0)
    assert store.get("ft-0") is None


def test_queue_bound_holds_under_many_threads(store: JobStore) -> None:
    def attempt(_: int) -> bool:
        try:
            add(store, max_queued=7)
        except QueueFullError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        accepted = list(pool.map(attempt, range(40)))
    assert sum(accepted) == 7
    assert store.counts() == {"queued": 7}


def test_who_waits_to_write_leaves_connections_to_readers(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    with contextlib.ExitStack() as waiting, ThreadPoolExecutor(1) as threads:
        for _ in range(40):
            waiting.enter_context(engine.connect())
        assert threads.submit(JobStore(engine).counts).result(10) == {}
    engine.dispose()


def test_readers_do_not_wait_for_who_writes(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    with engine.connect().execution_options(writes=True) as writing, writing.begin():
        assert JobStore(engine).counts() == {}
    engine.dispose()


def test_one_key_makes_one_job(store: JobStore) -> None:
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(lambda _: add(store, key="k").id, range(32)))
    assert len(ids) == 1
    assert store.counts() == {"queued": 1}
    with pytest.raises(KeyReusedError):
        add(store, key="k", fingerprint="b")
    found = store.find_key("a", "k")
    assert found is not None
    assert found.id in ids
    with pytest.raises(KeyReusedError):
        store.find_key("b", "k")


def test_only_one_of_many_changes_a_job(store: JobStore) -> None:
    job = add(store)
    with ThreadPoolExecutor(16) as pool:
        changed = list(pool.map(lambda n: store.change(job, status="starting", worker=f"w{n}", attempt=1), range(32)))
    assert sum(changed) == 1
    now = store.get(job.id)
    assert now is not None
    assert now.worker == f"w{changed.index(True)}"


def test_who_knows_an_earlier_attempt_changes_nothing(store: JobStore) -> None:
    store.change(add(store), status="running", attempt=1)
    (first,) = store.active()
    store.change(first, status="queued")
    (waiting,) = store.queued(1)
    store.change(waiting, status="running", attempt=2)
    assert not store.change(first, status="succeeded")
    assert [job.status for job in store.active()] == ["running"]


def test_pages_and_order(store: JobStore) -> None:
    ids = [add(store).id for _ in range(5)]
    assert [job.id for job in store.queued(3)] == ids[:3]
    newest = store.page(2)
    assert [job.id for job in newest] == ids[:2:-1]
    assert [job.id for job in store.page(9, newest[-1])] == ids[2::-1]
    assert store.page(9, status="running") == []


def test_slot_has_one_worker_at_a_time(store: JobStore) -> None:
    store.add_slots(2)
    store.add_slots(3)
    slots = store.slots()
    assert slots == [Slot(number, 0, None) for number in range(3)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda n: store.set_worker(slots[0], 1, f"w{n}"), range(16)))
    assert sum(taken) == 1
    assert store.slots()[0] == Slot(0, 1, f"w{taken.index(True)}")


def test_reopened_store_has_everything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sub' / 'jobs.sqlite3'}"
    first = JobStore(open_database(url))
    job = add(first)
    first.close()
    second = JobStore(open_database(url))
    assert second.get(job.id) == job
    second.close()


def test_database_of_the_first_release_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    spec = {key: value for key, value in SPEC.to_json().items() if key != "version"}
    with contextlib.closing(sqlite3.connect(path)) as old:
        columns = "number INTEGER PRIMARY KEY, id VARCHAR, status VARCHAR, request JSON, spec JSON, "
        columns += "idempotency_key VARCHAR, fingerprint VARCHAR, created_at FLOAT, started_at FLOAT, "
        columns += "finished_at FLOAT, attempt INTEGER, lost_attempts INTEGER, worker VARCHAR, step INTEGER, "
        old.execute(f"CREATE TABLE finetune_jobs ({columns} result JSON, error JSON)")
        values = (1, "ft-1", "queued", json.dumps(REQUEST), json.dumps(spec), "a", 1.0, 0, 0, 0)
        names = "number, id, status, request, spec, fingerprint, created_at, attempt, lost_attempts, step"
        old.execute(f"INSERT INTO finetune_jobs ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        old.commit()
    store = JobStore(open_database(f"sqlite:///{path}"))
    (job,) = store.queued(10)
    assert (job.id, job.spec, job.owner) == ("ft-1", SPEC, None)
    assert add(store).number == 2
    store.close()


@pytest.mark.parametrize("url", ["nonsense", "mysterydb://x", "sqlite:////proc/nowhere/x.db"])
def test_unusable_database_is_one_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="the database") as caught:
        open_database(url)
    assert "\n" not in str(caught.value)


class StoreMachine(RuleBasedStateMachine):
    """Actors with stale knowledge change jobs in any order; an ended job stays as it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.store = JobStore(open_database("sqlite://"))
        self.seen: list[JobRow] = []
        self.ended: dict[str, str] = {}

    def teardown(self) -> None:
        self.store.close()

    @rule()
    def accept(self) -> None:
        if len(self.seen) < 6:
            self.seen.append(add(self.store))

    @precondition(lambda self: self.seen)
    @rule(choice=st.integers(0, 5), target_status=st.integers(0, 6), fresh=st.booleans())
    def change(self, choice: int, target_status: int, fresh: bool) -> None:
        position = choice % len(self.seen)
        job = self.seen[position]
        if fresh:
            job = self.seen[position] = self.store.get(job.id) or job
        status = STATUSES[target_status % len(STATUSES)]
        if job.ended:
            return
        if self.store.change(job, status=status, attempt=job.attempt + (status == "starting")) and status in TERMINAL:
            assert job.id not in self.ended
            self.ended[job.id] = status

    @invariant()
    def ended_jobs_stay_ended(self) -> None:
        for job_id, status in self.ended.items():
            job = self.store.get(job_id)
            assert job is not None
            assert job.status == status
        assert {job.status for job in self.store.active()} <= set(ACTIVE)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
