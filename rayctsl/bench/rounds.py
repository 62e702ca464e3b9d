"""What the measurements share: processes that stay alive between rounds, and medians with their spread."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

import numpy as np

from rayctsl.contract import Json

Figures = dict[str, Json]  # what a measurement prints, by name
Message = TypeVar("Message")
Answer = TypeVar("Answer")


def middle(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median, and the spread around it."""
    return float(np.median(values)), (float(min(values)), float(max(values)))


def median_and_spread(name: str, values: Sequence[float]) -> Figures:
    """Example: median_and_spread("ratio", [1.0, 1.2, 1.1]) == {"ratio": 1.1, "ratio_spread": [1.0, 1.2]}"""
    median, spread = middle(values)
    return {name: median, f"{name}_spread": list(spread)}


def release_freed_memory(*unused: object) -> None:
    """Give memory that is kept for the next step back, so that processes that wait leave room for others."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


class Processes(Generic[Message, Answer]):
    """Processes that each build a worker once and then call it on demand, all at the same time.

    Example: with Processes(make_worker, [(0,), (1,)]) as team: seconds = team.run(10)
    """

    def __init__(
        self, build: Callable[..., Callable[[Message], Answer]], arguments: Sequence[tuple[object, ...]]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], list[Connection]()
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

    def run(self, message: Message) -> float:
        """Seconds until every worker has answered."""
        started = time.perf_counter()
        self.ask(message)
        return time.perf_counter() - started

    def ask(self, message: Message) -> list[Answer]:
        """What the workers, called with `message`, answer."""
        self._send(message)
        return self._receive()

    def release(self) -> None:
        """Let every process give back the memory that it keeps."""
        self._send(None)
        self._receive()

    def _send(self, message: Message | None) -> None:
        for pipe in self._pipes:
            with suppress(BrokenPipeError):  # who has died does not answer either, and is told of then
                pipe.send(message)

    def _receive(self) -> list[Answer]:
        try:
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, ConnectionResetError):  # the latter when it has left a message unread
            raise RuntimeError("a process of the measurement died; its error is above") from None

    def __enter__(self) -> Processes[Message, Answer]:
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


def _serve(pipe: Connection, build: Callable[..., Callable[[Message], Answer]], arguments: tuple[object, ...]) -> None:
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
