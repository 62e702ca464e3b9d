"""How long after `POST /finetune` a warm service has taken the job's first step, and when its client hears of it."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from serve.bench.instance import DATASET, Instance, finished_job, make_dataset, make_initialization


def measure(rounds: int, dataset: str = DATASET) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="rayctsl-bench-") as name:
        folder = Path(name)
        make_dataset(folder / "data")
        make_initialization(folder / "storage")
        with Instance(folder).running() as service, httpx.Client(base_url=service.url, trust_env=False) as http:
            finished_job(service)  # the worker lives
            taken = [_first_step(http, dataset, seed) for seed in range(rounds)]
    step, heard = ([one[index] for one in taken] for index in (0, 1))
    return {
        "dataset": dataset,
        "rounds": rounds,
        "first_step_s": _spread(step),
        "heard_s": _spread(heard),
    }


def _first_step(http: httpx.Client, dataset: str, seed: int) -> tuple[float, float]:
    """Seconds until the first step, with its evaluation, was done, and until an open stream said so."""
    body = {"dataset": dataset, "steps": 1, "seed": seed}
    started = time.time()
    job = http.post("/finetune", json=body, timeout=30.0).raise_for_status().json()["id"]
    done = heard = float("nan")
    kind = ""
    with http.stream("GET", f"/finetune/{job}/events", timeout=120.0) as stream:
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            if name == "data" and kind == "point":
                done, heard = json.loads(value)["at"] - started, time.time() - started
    return done, heard


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(seconds), 3), "max": round(max(seconds), 3)}
