"""The dispatcher, turn by turn: who gets which job, what becomes of lost ones, and who keeps still."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from serve.routes import finetune as route


def test_a_job_is_given_started_watched_and_ended(stage):
    service = stage()
    job = service.add()
    service.turn()
    (worker,) = service.workers
    assert (service.job(job).status, service.server.states[worker]) == ("queued", "RUNNING")
    service.beat()
    service.turn()
    assert (service.job(job).status, service.job(job).worker, service.job(job).attempt) == ("starting", worker, 1)
    assert service.told(worker) == (job, 1)
    service.progress(job, 4)
    service.turn()
    assert (service.job(job).status, service.job(job).step) == ("running", 4)
    assert service.job(job).started_at is not None
    service.finish(job, result={"accuracy": 1.0})
    service.turn()
    ended = service.job(job)
    assert (ended.status, ended.step, ended.result.accuracy) == ("succeeded", 10, 1.0)


def test_jobs_are_taken_in_their_order_and_no_more_than_may_run(stage):
    service = stage(max_running=2)
    jobs = [service.add() for _ in range(4)]
    service.turn()
    assert len(service.workers) == 2
    service.beat()
    service.turn(3)
    assert [service.job(job).status for job in jobs] == ["starting", "starting", "queued", "queued"]


def test_a_busy_worker_gets_no_second_job(stage):
    service = stage(max_running=2)
    first = service.running()
    second = service.add()
    service.turn()
    service.beat()
    service.turn()
    workers = {service.job(job).worker for job in (first, second)}
    assert workers == set(service.workers)
    assert len(workers) == 2


def test_a_job_whose_worker_died_waits_and_goes_on_with_the_next(stage):
    service = stage(max_running=1)
    job = service.running()
    (lost,) = service.workers
    service.lose(lost)
    service.turn()
    assert (service.job(job).status, service.job(job).lost_attempts) == ("queued", 1)
    (replacement,) = service.workers
    assert replacement != lost
    assert service.told(lost) == (None, 0), "should it come to life again, it must leave"
    service.beat()
    service.turn()
    assert (service.job(job).attempt, service.told(replacement)) == (2, (job, 2))


def test_a_job_that_loses_worker_after_worker_fails(stage):
    service = stage(max_running=1, max_attempts=3)
    job = service.running()
    for attempt in (1, 2, 3):
        assert service.job(job).attempt == attempt
        service.progress(job)
        service.lose(service.job(job).worker)
        service.turn()
        if attempt < 3:
            assert service.job(job).status == "queued"
            service.beat()
            service.turn()
    ended = service.job(job)
    assert (ended.status, ended.error.code) == ("failed", "worker_lost")


def test_an_attempt_that_never_began_does_not_count(stage):
    service = stage(max_running=1, max_attempts=1)
    job = service.add()
    service.turn()
    service.beat()
    service.turn()
    service.lose(service.job(job).worker)  # before it wrote anything
    service.turn()
    assert (service.job(job).status, service.job(job).lost_attempts) == ("queued", 0)


def test_a_result_written_just_before_death_counts(stage):
    service = stage(max_running=1)
    job = service.running()
    service.lose(service.job(job).worker)
    service.finish(job, status="failed", error={"code": "bad_input", "message": "diverged"})
    service.turn()
    assert (service.job(job).status, service.job(job).error.code) == ("failed", "bad_input")


def test_a_result_written_while_the_workers_are_looked_at_counts(stage, monkeypatch):
    service = stage(max_running=1)
    job = service.running()
    service.lose(service.job(job).worker)
    look = service.pool.look

    async def look_late():
        await look()
        service.finish(job)

    monkeypatch.setattr(service.pool, "look", look_late)
    service.turn()
    assert service.job(job).status == "succeeded"


def test_fewer_may_run_than_there_are_workers(stage):
    """As after a restart with a smaller --max-running, while the workers of before still live."""
    service = stage(max_running=2, warm_workers=2)
    service.turn()
    service.beat()
    jobs = [service.add() for _ in range(2)]
    service.dispatcher.settings = replace(service.settings, max_running=1)
    service.turn()
    assert [service.job(job).status for job in jobs] == ["starting", "queued"]


def test_the_next_service_tells_a_worker_again(stage):
    """The one before may have died between the store and the file."""
    service = stage(max_running=1)
    job = service.running()
    (worker,) = service.workers
    service.storage.delete_folder(f"workers/{worker}")
    service.beat()
    service.begin()
    service.beat()
    service.turn()
    assert service.told(worker) == (job, 1)


def test_a_running_job_is_cancelled_by_its_flag(stage):
    service = stage(max_running=1)
    job = service.running()
    assert service.store.change(service.job(job), status="cancelling")
    service.turn()
    assert service.storage.exists(f"jobs/{job}/cancel")
    service.finish(job, status="cancelled")
    service.turn()
    assert service.job(job).status == "cancelled"


def test_a_cancel_whose_worker_dies_is_a_cancel(stage):
    service = stage(max_running=1)
    job = service.running()
    service.store.change(service.job(job), status="cancelling")
    service.lose(service.job(job).worker)
    service.turn()
    assert service.job(job).status == "cancelled"


def test_a_cancel_need_not_wait_for_a_cluster_that_is_gone(stage):
    service = stage(max_running=1)
    job = service.running()
    service.store.change(service.job(job), status="cancelling")
    service.server.up = False
    service.now += 20
    service.turn()
    assert service.job(job).status == "cancelling"
    service.now += 20
    service.turn()
    assert service.job(job).status == "cancelled"


def test_a_cancel_that_comes_second_looks_again(stage, monkeypatch):
    """The dispatcher gives the job away between the route's look and its change."""
    service = stage(max_running=1)
    job = service.add()
    service.turn()
    service.beat()
    change = service.store.change

    def too_late(seen, **values):
        monkeypatch.setattr(service.store, "change", change)
        service.turn()
        return change(seen, **values)

    monkeypatch.setattr(service.store, "change", too_late)
    route.cancel(SimpleNamespace(store=service.store, hurry=lambda: None), service.job(job))
    assert service.job(job).status == "cancelling"
    service.turn()
    assert service.storage.exists(f"jobs/{job}/cancel")


@pytest.mark.parametrize(("leads", "does"), [(True, {"turn"}), (False, {"look"})])
def test_who_does_not_lead_looks_on(stage, monkeypatch, leads, does):
    service, did = stage(), []
    monkeypatch.setattr(service.dispatcher.leadership, "held", lambda: leads)

    async def run() -> None:
        seen = asyncio.Event()

        def note(what):
            async def noted():
                did.append(what)
                seen.set()

            return noted

        monkeypatch.setattr(service.dispatcher, "turn", note("turn"))
        monkeypatch.setattr(service.pool, "look", note("look"))
        running = asyncio.create_task(service.dispatcher.run())
        await asyncio.wait_for(seen.wait(), 30)
        running.cancel()

    asyncio.run(run())
    assert set(did) == does


def test_a_turn_that_fails_is_followed_by_the_next(stage, monkeypatch):
    service = stage()
    monkeypatch.setattr("serve.jobs.dispatcher.TURN_SECONDS", 0)
    turns = 0

    async def run() -> None:
        again = asyncio.Event()

        async def turn():
            nonlocal turns
            turns += 1
            if turns == 1:
                raise OSError("the disk is full")
            again.set()

        monkeypatch.setattr(service.dispatcher, "turn", turn)
        running = asyncio.create_task(service.dispatcher.run())
        await asyncio.wait_for(again.wait(), 30)
        running.cancel()

    asyncio.run(run())
    assert turns >= 2


def test_guests_who_keep_every_thread_busy_hold_no_job_up(stage):
    service, leave = stage(), threading.Event()
    job = service.add()
    service.turn()
    service.beat()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            loop.run_in_executor(None, leave.wait)
        try:
            await asyncio.wait_for(service.dispatcher.turn(), 10)
        finally:
            leave.set()

    asyncio.run(run())
    assert service.job(job).status == "starting"


def test_a_fault_that_stays_is_told_once(stage, caplog):
    service = stage()
    for _ in range(5):
        service.dispatcher._say("the disk is full", OSError())
    assert len(caplog.records) == 1
