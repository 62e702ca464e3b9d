"""Predictions in a process of their own, one at a time and only so many waiting: guests cannot fill this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

from rayctsl.contract import read_contract
from rayctsl.jobs.predictor import LENGTH, LENGTHS, PredictAnswer, PredictRequest
from serve.problems import HttpProblem, log

START_SECONDS = 120.0
ANSWER_SECONDS = 30.0
IDLE_SECONDS = 600.0
RETRY_SECONDS = 2
PROBLEMS = {
    "too_large": HttpProblem(413, "The image may have 25,000,000 pixels, and 12,000 on a side.", "image-too-large"),
    "unreadable": HttpProblem(422, "This is not a readable PNG, JPEG, WebP, GIF or BMP image.", "unreadable-image"),
    "missing": HttpProblem(503, "The weights of this job are missing from the storage."),
    "damaged": HttpProblem(503, "The weights of this job are damaged in the storage."),
}


class Predictor:
    """Asks the process, which is started when it is first needed and leaves when nobody has asked for a while."""

    def __init__(self, max_waiting: int):
        self._max_waiting, self._waiting = max_waiting, 0
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._leave: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place in the short queue, taken before a request's image is read; 503 when there is none."""
        if self._waiting >= self._max_waiting:
            detail = f"{self._max_waiting} predictions are waiting already; try again in a moment."
            raise HttpProblem(503, detail, "predictor-busy", {"retry-after": str(RETRY_SECONDS)})
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def classify(self, root: Path, name: str, sha256: str, image: bytes) -> list[tuple[str, float]]:
        """Class names with probabilities of the model in a file below a folder, likeliest first."""
        request = PredictRequest(root=str(root), name=name, sha256=sha256).to_bytes()
        async with self._turn:
            try:
                async with asyncio.timeout(START_SECONDS):
                    process = await self._started()
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._ask(process, request, image)
            except (TimeoutError, OSError, EOFError, asyncio.IncompleteReadError) as error:
                log.error("the predictor failed: %s", type(error).__name__)
                await self._end()
                raise HttpProblem(503, "The prediction took too long or failed; try again.") from None
            except BaseException:
                await self._end()  # cut off half way, its answer would be the next caller's
                raise
        if answer.problem is not None:
            problem = PROBLEMS[answer.problem]
            raise HttpProblem(problem.status, problem.detail, problem.kind)
        return list(answer.classes)

    async def close(self) -> None:
        await self._end()

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            words = (sys.executable, "-m", "rayctsl.jobs.predictor")
            self._process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, limit=2**24)
            assert self._process.stdout is not None
            await self._process.stdout.readexactly(LENGTH.size)  # it is ready
        return self._process

    async def _ask(self, process: Process, request: bytes, image: bytes) -> PredictAnswer:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LENGTHS.pack(len(request), len(image)) + request + image)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        data = await process.stdout.readexactly(size)
        if self._leave is not None:
            self._leave.cancel()
        loop = asyncio.get_running_loop()
        self._leave = loop.call_later(IDLE_SECONDS, lambda: asyncio.ensure_future(self._end_idle()))
        return read_contract(PredictAnswer, data, "the answer")

    async def _end_idle(self) -> None:
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if self._leave is not None:
            self._leave.cancel()
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
