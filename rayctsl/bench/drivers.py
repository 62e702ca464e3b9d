"""Two drivers on one run folder, again and again with random timing: exactly one writes, and nothing is lost."""

from __future__ import annotations

import argparse
import io
import os
import random
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from rayctsl.bench.noisy_task import NoisyTask
from rayctsl.bench.rounds import Processes
from rayctsl.config import build_config
from rayctsl.learning.engine import LocalEngine
from rayctsl.learning.lease import InUse
from rayctsl.learning.problem import Problem
from rayctsl.learning.run import run_local, train_with
from rayctsl.learning.run_folder import RunFolder
from rayctsl.learning.snapshot import latest_snapshot
from rayctsl.registry import open_initialization

STEPS = 24
STEP_SECONDS = 0.25  # long enough that the second driver always comes while the first is at work


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """How often one driver wrote and the other was refused, and whether every phi is the undisturbed one."""
    chance, outcomes, whole = random.Random(arguments.seed), list[tuple[str, ...]](), 0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        base = start_s3(stack) if arguments.storage == "s3" else f"{folder}/{{}}"
        calm = _problem(0.0)
        expected = run_local(calm.config, RunFolder.open(f"{folder}/calm", calm.config), calm).card.sha256
        team = stack.enter_context(Processes(Driver, [(number,) for number in range(2)]))
        for attempt in range(arguments.tries):
            address = base.format(f"try-{attempt}")
            delays = [chance.choice([0.0, chance.uniform(0, 2.0)]) for _ in range(2)]
            outcomes.append(tuple(sorted(team.ask((address, delays)))))
            whole += _is_whole(address, expected)
    return {
        "tries": arguments.tries,
        "storage": arguments.storage,
        "one_wrote_one_refused": outcomes.count(("refused", "wrote")),
        "outcomes": sorted({" and ".join(each) for each in outcomes}),
        "whole_and_identical": whole,
        "seed": arguments.seed,
    }


def start_s3(stack: ExitStack) -> str:
    """An object store on this machine; addresses take the place of the braces."""
    from moto.server import ThreadedMotoServer  # of the development environment

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    stack.callback(server.stop)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_EC2_METADATA_DISABLED="true")
    options = f"endpoint_override=127.0.0.1:{server.get_host_and_port()[1]}&scheme=http&region=us-east-1"
    return f"s3://drivers/{{}}?{options}&allow_bucket_creation=true"


def _problem(slow_seconds: float) -> Problem:
    tasks = {name: NoisyTask(name, slow_seconds) for name in ("task-0", "task-1")}
    raw = {"inner_steps": STEPS // 2, "trajectories": 2, "snapshot_every": 4, "data": {"tasks": list(tasks)}}
    return Problem.of(build_config({**raw, "method": {"name": "shifting", "beta": 0.1}}), tasks=tasks)


def _is_whole(address: str, expected: str) -> bool:
    """Whether the run's initialization and its newest snapshot are there and right."""
    folder = RunFolder.open(address, resume="must")
    state, complaints = latest_snapshot(folder.storage.inside("checkpoints"))
    right = open_initialization(address).card.sha256 == expected
    return right and state is not None and state.step == STEPS and not complaints


class Driver:
    """A process that drives runs on demand."""

    def __init__(self, number: int):
        self.number = number

    def __call__(self, message: tuple[str, list[float]]) -> str:
        address, delays = message
        time.sleep(delays[self.number])
        problem = _problem(STEP_SECONDS / 2)
        folder = RunFolder.open(address, problem.config, resume="if_exists")
        try:
            train_with(LocalEngine(problem), problem, folder, log=io.StringIO(), stop_on_signals=False)
        except InUse:
            return "refused"
        return "wrote"
