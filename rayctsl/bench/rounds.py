"""What the measurements share: processes that stay alive between rounds, and medians with their spread."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def median_and_spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Example: median_and_spread("ratio", [1.0, 1.2, 1.1]) == {"ratio": 1.1, "ratio_spread": [1.0, 1.2]}"""
    return {name: float(np.median(values)), f"{name}_spread": [float(min(values)), float(max(values))]}


def release_freed_memory(*unused: object) -> None:
    """Give memory that is kept for the next step back, so that processes that wait leave room for others."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


class Team:
    """Processes that each build a worker once and then call it on demand, all at the same time.

    Example: with Team(make_worker, [(0,), (1,)]) as team: seconds = team.run(10)
    """

    def __init__(self, build: Callable[..., Callable[[Any], Any]], arguments: Sequence[tuple[Any, ...]]):
        context = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], []
        for each in arguments:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, build, each))
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)
        try:
            self._receive()
        except RuntimeError:
            self.close()
            raise

    def run(self, message: Any) -> float:
        """Seconds until every worker has answered."""
        started = time.perf_counter()
        self.ask(message)
        return time.perf_counter() - started

    def ask(self, message: Any) -> list[Any]:
        """What the workers, called with `message`, answer."""
        for pipe in self._pipes:
            pipe.send(message)
        return self._receive()

    def release(self) -> None:
        """Let every process give back the memory that it keeps."""
        self.ask(None)

    def _receive(self) -> list[Any]:
        try:
            return [pipe.recv() for pipe in self._pipes]
        except EOFError:
            raise RuntimeError("a process of the measurement died; its error is above") from None

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.terminate()


def _serve(pipe: Any, build: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    worker = build(*arguments)
    pipe.send(None)
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if message is None:
            release_freed_memory()
            pipe.send(None)
        else:
            pipe.send(worker(message))
