"""Fine-tuning with several seeds side by side, each in a process of its own, each to be continued after an end.

A seed's whole state lies in `seed-N.safetensors` of a folder: a call with the same folder goes on from there. Results
are read from these files, so it does not matter which process, or which call, a seed was trained by.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

import torch
from safetensors.torch import load, save

from rayctsl.config import FinetuneConfig
from rayctsl.data.library import Dataset
from rayctsl.device import choose_device
from rayctsl.learning.finetune import CurvePoint, Finetuner, check_point
from rayctsl.learning.processor import num_threads
from rayctsl.learning.start import Start
from rayctsl.processes import HelperContext, die_with_parent, signals_held_back
from rayctsl.progress import say
from rayctsl.storage import Storage

SAVE_SECONDS = 10.0
OnPoint = Callable[[int, CurvePoint], None]


@dataclass(frozen=True)
class SeedWork:
    """What every seed's process needs; only the seed differs."""

    start: Start
    dataset: Dataset
    config: FinetuneConfig
    folder: str
    threads: int | None = None

    def tuner(self, seed: int, device: str = "cpu") -> Finetuner:
        """The seed's training, where its file left it."""
        module = self.start.build(self.dataset.num_classes, seed)
        tuner = Finetuner(module, self.dataset, self.config, seed=seed, phi=self.start.phi, device=device)
        with contextlib.suppress(FileNotFoundError):
            tuner.load_state(load(Storage(self.folder).read(seed_file(seed))))
        return tuner


def run_seeds(work: SeedWork, on_point: OnPoint | None = None, workers: int | None = 1) -> None:
    """Bring every seed to its end.

    Args:
        workers: processes; 1 trains in this one, None takes one a seed as far as GPUs, or else cores, go.
    """
    seeds, cores = range(work.config.seeds), len(os.sched_getaffinity(0))
    places = cores if choose_device() == "cpu" else torch.accelerator.device_count()
    workers = min(len(seeds), workers or places)
    if workers == 1 or work.start.own is not None:  # a user's own model may not fit into another process
        with num_threads(work.threads):
            for seed in seeds:
                run_seed(work, seed, on_point)
        return
    context = HelperContext()
    points, stop = context.SimpleQueue(), context.Event()
    threads = work.threads or max(1, cores // workers)
    each = "1 thread" if threads == 1 else f"{threads} threads"
    say(f"training {len(seeds)} seeds, {workers} at a time with {each} each")
    with ProcessPoolExecutor(workers, context, _begin, (points, stop, threads)) as pool:
        try:
            with signals_held_back(signal.SIGINT, signal.SIGTERM):
                waiting = {pool.submit(_run_in_process, work, seed) for seed in seeds}
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                _pass_on(points, on_point)
                for future in finished:
                    future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    _pass_on(points, on_point)


def run_seed(
    work: SeedWork, seed: int, on_point: OnPoint | None = None, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Train one seed on from its file, saving it every few seconds and when it is stopped."""
    kind, count = choose_device(), torch.accelerator.device_count()
    tuner = work.tuner(seed, kind if kind == "cpu" else f"{kind}:{seed % count}")
    storage, saved = Storage(work.folder), time.monotonic()
    for point in tuner.curve:  # of the file: a call before this one saved it also when it diverged
        check_point(seed, point)
    if on_point and tuner.curve:
        on_point(seed, tuner.curve[-1])

    def show(point: CurvePoint) -> None:
        check_point(seed, point)
        if on_point:
            on_point(seed, point)

    try:
        while tuner.step < work.config.steps and not stopped():
            tuner.run(tuner.step + 1, on_point=show)
            if time.monotonic() - saved > SAVE_SECONDS:
                storage.write(seed_file(seed), save(tuner.state()))
                saved = time.monotonic()
    finally:
        storage.write(seed_file(seed), save(tuner.state()))


def seed_file(seed: int) -> str:
    return f"seed-{seed}.safetensors"


_process: dict[str, Any] = {}  # of a process that trains seeds: where points go, when to stop


def _begin(points: Any, stop: Event, threads: int) -> None:
    torch.set_num_threads(threads)
    _process.update(points=points, stop=stop)
    die_with_parent()


def _run_in_process(work: SeedWork, seed: int) -> None:
    run_seed(work, seed, lambda *point: _process["points"].put(point), _process["stop"].is_set)


def _pass_on(points: Any, on_point: OnPoint | None) -> None:
    while not points.empty():
        seed, point = points.get()
        if on_point:
            on_point(seed, point)
