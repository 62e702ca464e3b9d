"""The import of an archive, in a process with little power: started, listened to, and ended with its task."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from rayctsl.jobs.importer import Limits

PASSED_ON = ("PATH", "LANG", "HOME", "RAYCTSL_CACHE")  # of our environment; not our token
SILENT = "the import ended without a word"
KILLED = "the import used more time or memory than it may"


Stage = Callable[[str], Awaitable[None]]


async def run_importer(
    archive: Path, name: str, root: str, limits: Limits, size: int | None, seed: int, on_stage: Stage
) -> str | None:
    """Import an archive into a data root; returns what is wrong with it, or nothing."""
    words = [sys.executable, "-m", "rayctsl.jobs.importer", str(archive), "--name", name, "--root", root]
    words += ["--seed", str(seed), *(["--size", str(size)] if size else [])]
    for key, value in asdict(limits).items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=archive.parent,
        env={key: os.environ[key] for key in PASSED_ON if key in os.environ},
        start_new_session=True,
    )
    try:
        return await _listen(process, on_stage)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its own children too
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _listen(process: Process, on_stage: Stage) -> str | None:
    assert process.stdout is not None
    error = SILENT
    async for line in process.stdout:
        said = json.loads(line)
        error = said.get("error") or error
        if "stage" in said:
            await on_stage(f"{said['stage']} {said.get('files', '')}".strip())
    code = await process.wait()
    if code == 0:
        return None
    return error if code > 0 else KILLED
