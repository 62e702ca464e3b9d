"""The proof that no guest hurts the service: schemathesis and mutated images, archives, cards and streams at once.

Meanwhile the probes are asked ten times a second and the memory is watched. At the end no route may have answered with
an error of the server that its document does not name, nor any with 500, and the log may hold no traceback.
"""

from __future__ import annotations

import http.client
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from serve.bench.guests import Guests
from serve.bench.instance import Instance, finished_job, make_dataset, make_initialization, resident

PROBES = ("/livez", "/readyz")
PERIOD = 0.1
MOST_GROWTH, MOST_PROBE_MS = 0.10, 200.0
WARM_SECONDS = 300.0  # of a long run; a quarter of a short one
EXAMPLES = 20
# Rightly refused are requests for what was deleted meanwhile, and bytes that are no picture: a document can ask for
# bytes, but not for a picture's.
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 410, 429, "5xx"]

[[operations]]
include-path = "/finetune/{id}/predict"
[operations.checks]
positive_data_acceptance.enabled = false
"""


class Bare:
    """A process that answers 200 to everything: what the probes would take here if the service did nothing at all."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:  # the child has its own
            self.port: int = listener.getsockname()[1]
            self.process = multiprocessing.get_context("fork").Process(target=_always_200, args=[listener], daemon=True)
            self.process.start()


def _always_200(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


class Lookout(threading.Thread):
    """Asks the probes, each time on a connection of its own, and looks at the memory."""

    def __init__(self, service: Instance):
        super().__init__(daemon=True)
        assert service.process is not None
        self._service, self._pid = service, service.process.pid
        self.done = threading.Event()
        self._bare = Bare()
        self.milliseconds: list[float] = []
        self.bare_milliseconds: list[float] = []
        self.memory: list[tuple[float, float]] = []  # seconds since the first look, megabytes
        self.failures: list[str] = []

    def run(self) -> None:
        started = time.monotonic()
        while not self.done.wait(PERIOD):
            for path in PROBES:
                self.milliseconds.append(self._ask(self._service.port, path))
            self.bare_milliseconds.append(self._ask(self._bare.port, "/"))
            self.memory.append((time.monotonic() - started, resident(self._pid)))
        self._bare.process.kill()

    def _ask(self, port: int, path: str) -> float:
        started = time.perf_counter()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
            connection.request("GET", path)
            status: object = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        if status != 200:
            self.failures.append(f"{path}: {status}")
        return 1000 * (time.perf_counter() - started)

    @property
    def growth(self) -> float:
        return growth(self.memory)


def growth(memory: list[tuple[float, float]]) -> float:
    """The last tenth of the time against the tenth after the warm-up, in which modules, threads and caches come."""
    end = memory[-1][0]
    warm, tenth = min(WARM_SECONDS, end / 4), end / 10
    first = statistics.median(megabytes for at, megabytes in memory if warm <= at <= warm + tenth)
    return statistics.median(megabytes for at, megabytes in memory if at >= end - tenth) / first - 1


def prove(
    minutes: float, seed: int = 0, folder: Path | None = None, most_probe_ms: float = MOST_PROBE_MS
) -> dict[str, object]:
    """Run for so long and return the figures; `wrong` lists what should not have been, `held` says that nothing was."""
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        place = folder or Path(name)
        make_dataset(place / "data")
        for number, method in enumerate(("shifting", "reptile")):
            make_initialization(place / "storage", number, method)
        options = ("--max-running", "2", "--job-cpus", "0.1", "--job-limit", "5")
        with Instance(place, *options).running() as service:
            return _attack(service, finished_job(service), minutes, seed, place, most_probe_ms)


def _attack(
    service: Instance, job: str, minutes: float, seed: int, place: Path, most_probe_ms: float
) -> dict[str, object]:
    started, guests, watch = time.monotonic(), Guests(service, job, seed), Lookout(service)
    guests.start()
    watch.start()
    wrong, rounds = list[str](), 0
    while (left := 60 * minutes - (time.monotonic() - started)) > 0:
        wrong += _schemathesis(service, seed + rounds, left, place)
        rounds += 1
    guests.done.set()
    watch.done.set()
    watch.join()
    codes = answers(httpx.get(f"{service.url}/metrics", trust_env=False, timeout=30.0).text)
    p50, p99, worst = np.percentile(watch.milliseconds, [50, 99, 100])
    wrong += [*guests.surprises, *watch.failures, *_undocumented(service, codes)]
    wrong += ["a traceback in the log"] * ("Traceback" in service.log.read_text(errors="replace"))
    if p99 > most_probe_ms:
        wrong.append(f"probes took {p99:.0f} ms at p99")
    if watch.growth > MOST_GROWTH:
        wrong.append(f"memory grew by {100 * watch.growth:.0f} %")
    return {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "requests": sum(codes.values()),
        "server_errors": {f"{route} {code}": n for (route, code), n in codes.items() if code >= 500},
        "guests": guests.asked,
        "schemathesis_rounds": rounds,
        "probes": len(watch.milliseconds),
        "probe_ms": {"p50": round(p50, 1), "p99": round(p99, 1), "max": round(worst, 1)},
        "bare_ms": {f"p{each}": round(float(np.percentile(watch.bare_milliseconds, each)), 1) for each in (50, 99)},
        "memory_mb": round(watch.memory[-1][1], 1),
        "memory_growth": round(watch.growth, 3),
        "wrong": wrong[:50],
        "held": not wrong,
    }


def _schemathesis(service: Instance, seed: int, seconds: float, place: Path) -> list[str]:
    program = Path(sys.executable).parent / "schemathesis"
    (place / "schemathesis.toml").write_text(SETTINGS)
    command: list[str | Path] = [program, "run", f"{service.url}/openapi.json", "--seed", str(seed), "--no-color"]
    command += ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", str(EXAMPLES)]
    command += ["--max-time", f"{seconds:.0f}", "--request-timeout", "60", "--suppress-health-check", "all"]
    # Streams of jobs that wait have no end, so a guest reads them; errors of the server are counted by the server.
    command += ["--exclude-path", "/finetune/{id}/events", "--exclude-checks", "not_a_server_error"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    return [f"schemathesis, seed {seed}: {done.stdout[-4000:]}"] if done.returncode else []


def answers(figures: str) -> dict[tuple[str, int], int]:
    """How often each route answered with each status, whatever the method, by the service's own figures."""
    counts: dict[tuple[str, int], int] = {}
    for family in text_string_to_metric_families(figures):
        for sample in family.samples:
            if sample.name == "rayctsl_http_requests_total":
                key = sample.labels["route"], int(sample.labels["code"])
                counts[key] = counts.get(key, 0) + int(sample.value)
    return counts


def _undocumented(service: Instance, codes: dict[tuple[str, int], int]) -> list[str]:
    paths = httpx.get(f"{service.url}/openapi.json", trust_env=False, timeout=30.0).json()["paths"]
    named = {(path, int(code)) for path, item in paths.items() for each in item.values() for code in each["responses"]}
    errors = {key: count for key, count in codes.items() if key[1] >= 500 and (key[1] == 500 or key not in named)}
    return [f"{route} answered {code}, {count} times" for (route, code), count in errors.items()]
