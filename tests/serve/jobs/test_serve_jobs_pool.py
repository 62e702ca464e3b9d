"""The worker pool: who counts as alive, who as dead, and when new ones are started."""

from __future__ import annotations

import asyncio
import shlex
import sys
from dataclasses import replace

import httpx
import pytest

from serve.jobs.pool import FRESH_SECONDS, HUNG_SECONDS, KEPT_GENERATIONS
from serve.ray_jobs import RayJobs


def test_as_many_workers_as_jobs_and_no_more_than_may_run(stage):
    service = stage(max_running=3)
    service.turn()
    assert service.workers == []
    for count in (1, 2, 3, 3):
        service.add()
        service.turn()
        assert len(service.workers) == count
    assert set(service.server.states) == set(service.workers)


def test_after_a_start_with_fewer_places_no_more_workers_are_started(stage):
    service = stage(max_running=3, warm_workers=3)
    service.settings = replace(service.settings, max_running=1)
    service.begin()
    service.turn()
    assert len(service.workers) == 1


def test_a_worker_that_a_busy_head_has_not_taken_yet_is_not_dead(stage):
    service = stage(max_running=1)

    async def turns() -> None:
        taken = asyncio.Event()

        async def busy(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                await taken.wait()
            return service.server(request)

        service.pool.ray = RayJobs("http://127.0.0.1:1", transport=httpx.MockTransport(busy))
        service.pool.up = True
        for _ in range(3):
            await service.dispatcher.turn()
            await asyncio.sleep(0)
        taken.set()
        await asyncio.gather(*service.pool._submissions)

    service.add()
    asyncio.run(turns())
    assert len(service.server.states) == 1
    assert service.workers == list(service.server.states)


def test_warm_workers_wait_for_jobs(stage):
    service = stage(max_running=3, warm_workers=2)
    service.turn()
    assert len(service.workers) == 2


def test_the_command_carries_what_the_operator_chose(stage):
    service = stage(
        checkpoint_seconds=7.5, job_limit_seconds=99.0, worker_idle_seconds=11.0, job_cpus=2.5, job_gpus=0.5
    )
    service.add()
    service.turn()
    ((name, line),) = service.server.entrypoints.items()
    words = shlex.split(line)
    assert words[:3] == [sys.executable, "-m", "rayctsl.jobs.worker"]
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags == {
        "--storage": str(service.storage),
        "--worker": name,
        "--idle-seconds": "11",
        "--checkpoint-seconds": "7.5",
        "--limit-seconds": "99",
        "--threads": "2",
        "--gpus": "0.5",
    }
    assert service.server.shares == {name: (2.5, 0.5)}


def test_a_worker_elsewhere_has_the_clusters_python_and_on_part_of_a_cpu_one_thread(stage):
    service = stage(job_cpus=0.5)
    service.pool.ray = RayJobs("http://head:8265", transport=httpx.MockTransport(service.server))
    service.add()
    service.turn()
    (line,) = service.server.entrypoints.values()
    assert line.startswith("python -m rayctsl.jobs.worker ")
    assert " --threads 1 " in line


def test_a_silent_worker_that_ray_still_runs_keeps_its_job(stage):
    service = stage(max_running=1)
    job = service.running()
    service.now += FRESH_SECONDS + 1
    service.turn()
    assert service.job(job).status == "running"
    assert service.pool.alive == []
    service.beat()
    service.turn()
    assert service.pool.alive == service.workers


def test_a_worker_that_hangs_is_stopped_and_replaced(stage):
    service = stage(max_running=1)
    job = service.running()
    (hung,) = service.workers
    service.now += HUNG_SECONDS + 1
    service.turn()
    assert service.server.states[hung] == "STOPPED"
    service.turn()
    assert service.job(job).status == "queued"
    assert service.workers != [hung]


def test_nobody_is_dead_and_nobody_is_started_while_ray_does_not_answer(stage):
    service = stage(max_running=2)
    job = service.running()
    before = service.workers
    service.server.up = False
    service.add()
    service.lose(before[0])
    service.turn(2)
    assert (service.pool.up, service.workers, service.job(job).status) == (False, before, "running")
    service.server.up = True
    service.turn()
    assert service.pool.up
    assert service.job(job).status == "queued"


def test_a_worker_that_ray_never_heard_of_is_dead(stage):
    service = stage(max_running=1)
    job = service.running()
    service.lose(service.workers[0])
    service.server.states.clear()  # a new head
    service.turn()
    assert service.job(job).status == "queued"


def test_a_counter_found_by_a_new_service_must_move(stage):
    service = stage(max_running=1)
    service.running()
    for _ in range(3):
        service.beat()
    service.begin()
    service.turn()
    assert service.pool.alive == [], "the counter may be a dead worker's"
    service.beat()
    service.turn()
    assert service.pool.alive == service.workers


def test_workers_that_never_live_are_tried_less_and_less_often(stage):
    service = stage(max_running=1)
    service.add()
    pauses, last = [], service.now
    for _ in range(4):
        while not service.workers:
            service.now += 0.5
            service.turn()
        pauses.append(service.now - last)
        service.server.states[service.workers[0]] = "FAILED"  # without a sign of life
        service.turn()
        last = service.now
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    while not service.workers:
        service.now += 0.5
        service.turn()
    service.beat()
    service.turn()
    assert service.pool._failures == 0


def test_a_refused_submission_is_tried_again_later(stage):
    service = stage(max_running=1)
    service.server.accepts = False
    job = service.add()
    service.turn()
    assert service.server.states == {}
    service.server.accepts = True
    for _ in range(3):
        service.now += 10
        service.turn()
    service.beat()
    service.turn()
    assert service.job(job).status == "starting"


def test_a_submission_that_was_made_before_is_the_same(stage):
    service = stage(max_running=1)
    service.add()
    service.turn()
    (worker,) = service.workers
    slot = service.store.slots()[0]
    service.store.set_worker(slot, slot.generation - 1, None)  # as if the service had died before it noted the worker
    service.turn()
    assert service.workers == [worker]
    assert service.pool._failures == 0


def test_idle_workers_are_sent_away_and_busy_ones_are_not(stage):
    service = stage(max_running=2, warm_workers=2)
    service.turn()
    service.beat()
    job = service.add()
    service.turn()
    service.beat()
    service.turn()
    service.pool.send_away_idle()
    told = {worker: service.told(worker)[0] for worker in service.workers}
    assert sorted(told.values(), key=str) == sorted([job, None], key=str)


def test_folders_of_old_workers_are_removed(stage):
    service = stage(max_running=1)
    service.add()
    for _ in range(KEPT_GENERATIONS + 2):
        service.now += 100
        service.turn()
        service.beat()
        service.turn()
        service.lose(service.workers[0])
        service.turn()
    generations = sorted(int(name.rsplit("-", 1)[1]) for name in service.storage.names("workers"))
    assert generations[0] >= 3
    assert len(generations) <= KEPT_GENERATIONS + 1


@pytest.mark.parametrize("status", ["STOPPED", "SUCCEEDED", "FAILED"])
def test_whatever_ended_is_buried(stage, status):
    service = stage(max_running=1)
    job = service.running()
    service.lose(service.workers[0])
    service.server.states[service.workers[0]] = status
    service.turn()
    assert service.job(job).status == "queued"


def test_a_worker_without_a_sign_of_life_fails_its_job_with_the_reason(stage):
    service = stage(max_running=1, worker_start_seconds=30.0)
    job = service.add()
    with service.store._writing() as connection:  # it has waited for a while
        connection.exec_driver_sql("UPDATE finetune_jobs SET created_at = created_at - 3600")
    service.turn(2)
    service.now += 29
    service.turn()
    assert service.job(job).status == "queued"
    service.now += 10
    (mute,) = service.workers
    late = service.add()  # it may still be lucky
    service.turn(2)
    ended = service.job(job)
    assert (ended.status, ended.error.code) == ("failed", "storage_unreachable")
    assert service.server.states[mute] == "STOPPED", "it would hold its CPUs for ever"
    assert ended.started_at is None
    assert service.job(late).status == "queued"
    assert "mounted" in ended.error.message
    assert service.pool.mute
    service.add()
    while not service.workers:
        service.now += 0.5
        service.turn()
    service.beat()
    service.turn()
    assert not service.pool.mute, "it lives"


def test_the_clusters_death_is_seen_while_no_turn_is_taken(stage):
    service = stage()
    pool = service.pool

    async def watched() -> None:
        watching = asyncio.create_task(pool.watch())
        try:
            async with asyncio.timeout(3.0):  # as /readyz promises
                while not pool.up:
                    await asyncio.sleep(0.01)
                service.server.up = False
                while pool.up:
                    await asyncio.sleep(0.01)
        finally:
            watching.cancel()

    asyncio.run(watched())
