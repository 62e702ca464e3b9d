"""Real services on real ports: one with a Ray of its own, one whose cluster never answers, so that jobs wait."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from asyncio import _set_running_loop
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from rayctsl.ports import free_ports
from serve.bench.instance import Instance, make_dataset, make_initialization
from serve.service import Service
from tests.processes import is_alive
from tests.serve.warm import WarmInstance

SECONDS = 180_000  # milliseconds that anything on a page may take on a busy machine
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
NOBODY = "http://127.0.0.1:1"  # an address where no cluster is


@pytest.fixture(scope="session")
def make_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder with a dataset and three initializations."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("world")
        make_dataset(folder / "data")
        for seed, method in enumerate(("shifting", "reptile", "fomaml")):
            make_initialization(folder / "storage", seed, method)
        return folder

    return make


@pytest.fixture(scope="session")
def service(make_world: Callable[[], Path]) -> Iterator[Instance]:
    """A service with nothing set up: it starts Ray itself, and at the end must stop it."""
    # One worker, for each imports torch; and checkpoints so often that a test can wait for one.
    instance = Instance(make_world(), "--max-running", "1", "--job-cpus", "0.1", "--checkpoint-every", "0.2")
    instance.start()
    yield instance
    record = instance.storage / "service" / "ray.json"
    head = json.loads(record.read_text())
    assert instance.stop() == 0
    wait_for(lambda: not is_alive(head["pid"]), 10)
    assert not Path(head["temporary"]).exists()
    assert not record.exists()


@pytest.fixture
def inside(application: FastAPI) -> Service:
    """The service in this process: what the application of a test file works with."""
    found: Service = application.state.service
    return found


@pytest.fixture
def dashboard(service: Instance, monkeypatch: pytest.MonkeyPatch) -> str:
    """That service's Ray, for other services to join: its address, and its token where they look for it."""
    record = service.storage / "service" / "ray.json"
    wait_for(lambda: httpx.get(f"{service.url}/readyz", trust_env=False, verify=False).json()["ray"] == "up")
    head = json.loads(record.read_text())
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", head["token"])
    return str(head["url"])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server on loopback; skips where its programs are not installed."""
    found = shutil.which("initdb", path=os.pathsep.join(map(str, Path("/usr/lib/postgresql").glob("*/bin"))))
    found = found or shutil.which("initdb")
    if found is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    programs = Path(found).parent
    folder = Path(tempfile.mkdtemp(prefix="rayctsl-postgres-", dir="/tmp"))  # short: it holds a socket
    as_user = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    (port,) = free_ports(1)
    create = [*as_user, str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "rayctsl"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder)
    serve = [*as_user, str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port), "-k", str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*serve, "-h", "127.0.0.1"], stdout=log, stderr=log, cwd=folder)
    ask = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
    wait_for(lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0, 60)
    yield f"postgresql+psycopg://rayctsl@127.0.0.1:{port}/postgres"
    server.send_signal(signal.SIGINT)  # its fast shutdown
    server.wait(60)
    shutil.rmtree(folder)


def wait_for(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def http(service: Instance) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def waiting_service(make_world: Callable[[], Path]) -> Iterator[Instance]:
    with WarmInstance(make_world(), "--address", NOBODY, "--max-queued", "5").running() as instance:
        yield instance


@pytest.fixture(scope="session")
def waiting(waiting_service: Instance) -> Iterator[httpx.Client]:
    """A client of the service whose jobs stay in the queue."""
    with httpx.Client(base_url=waiting_service.url, timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def follow() -> Callable[..., dict[str, Any]]:
    """Wait until a job has a status, by default any that ends it."""

    def until(client: httpx.Client, job_id: str, *statuses: str, seconds: float = 240.0) -> dict[str, Any]:
        wanted = statuses or ("succeeded", "failed", "cancelled")
        deadline = time.monotonic() + seconds
        while (job := client.get(f"/finetune/{job_id}").json())["status"] not in wanted:
            assert time.monotonic() < deadline, f"job is still {job['status']}"
            time.sleep(0.1)
        return job

    return until


def in_browser(test: Callable) -> Callable:
    """Marks a test that needs Chromium; without one it is skipped before anything is started for it."""
    if not CHROMIUM.exists():
        test = pytest.mark.skip("no Chromium here: apt-get install chromium")(test)
    return pytest.mark.browser(test)


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """One for all tests: each costs 3 CPU seconds. And the loop by which Playwright talks to it, out of the way."""
    expect.set_options(timeout=SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        loop = asyncio.get_running_loop()
        _set_running_loop(None)
        yield browser, loop
        _set_running_loop(loop)
        browser.close()


@pytest.fixture
def browser(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Playwright's loop counts as this thread's only meanwhile, or no other test here could run one of its own."""
    browser, loop = chromium
    _set_running_loop(loop)
    yield browser
    _set_running_loop(None)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(
        viewport={"width": 1180, "height": 900},
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(SECONDS)
    yield context
    context.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about: a test may clear what it provoked, the rest fails it."""
    return []


@pytest.fixture
def page(context: BrowserContext, complaints: list[str]) -> Iterator[Page]:
    page = context.new_page()
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert complaints == []


@pytest.fixture
def ask(application: FastAPI) -> Callable[..., httpx.Response]:
    """Asks a module's own `application`, without a server."""

    def one(method: str, path: str, key: str | None = None, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            shown = {"authorization": f"Bearer {key}"} if key else {}
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:8000", headers=shown
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    return one
