"""Several services on one PostgreSQL database and one storage: one leads, and when it dies another does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from serve.bench.instance import Instance
from serve.jobs.leader import Leadership
from serve.jobs.tables import open_database
from tests.serve.conftest import wait_for

BODY = {"dataset": "stripes", "steps": 5}
pytestmark = pytest.mark.slow


def test_only_one_leads_until_its_connection_is_gone(postgres: str) -> None:
    engines = [open_database(postgres) for _ in range(3)]
    first, second = Leadership(engines[0]), Leadership(engines[1])
    assert [first.held(), second.held(), first.held(), second.held()] == [True, False, True, False]
    first.release()
    assert [second.held(), first.held()] == [True, False]
    with engines[2].begin() as connection:  # the server ends the leader's connection, and we wait until it has
        query = "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory'"
        assert connection.execute(text(query)).scalars().all() == [True]
    assert [second.held(), first.held(), second.held()] == [False, True, False]
    first.release()
    second.release()
    for engine in engines:
        engine.dispose()


def test_services_that_start_at_once_make_the_tables_together(postgres: str) -> None:
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE fresh"))
    engine.dispose()
    failed: list[BaseException] = []

    def start() -> None:
        try:
            open_database(postgres.replace("/postgres", "/fresh")).dispose()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.ray
@pytest.mark.long
def test_jobs_of_a_dead_leader_are_finished_by_the_next(
    postgres: str, dashboard: str, make_world: Callable[[], Path], follow: Callable[..., dict[str, Any]]
) -> None:
    world = make_world()
    options = ("--address", dashboard, "--database", postgres, "--max-running", "1", "--job-cpus", "0.1")
    with ExitStack() as stack:
        services = [stack.enter_context(Instance(world, *options).running()) for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=s.url, trust_env=False, timeout=30)) for s in services]

        def roles() -> list[str]:
            return [client.get("/readyz").json()["dispatcher"] for client in clients]

        wait_for(lambda: sorted(roles()) == ["running", "standby"])
        leader = roles().index("running")
        jobs = [
            client.post("/finetune", json={**BODY, "seed": seed}).json()["id"]
            for seed in range(3)
            for client in clients
        ]
        follow(clients[1 - leader], jobs[0])
        services[leader].kill()
        survivor = clients[1 - leader]
        assert [follow(survivor, job)["status"] for job in jobs] == ["succeeded"] * len(jobs)
        assert survivor.get("/readyz").json() == {"status": "ok", "ray": "up", "dispatcher": "running"}
        folders = [services[0].storage / "jobs" / job for job in jobs]
        assert [len(list(folder.glob("*/result.json"))) for folder in folders] == [1] * len(jobs)
