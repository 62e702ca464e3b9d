"""What goes wrong in the proof: service, worker or Ray's head is killed with -9, or the disk is full for a while."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from serve.bench.instance import Instance

FULL_SECONDS = 20.0


class Faults:
    """Strikes at random. The disk can be filled only where the storage is a small disk of its own."""

    def __init__(self, service: Instance, seed: int, can_fill: bool):
        self._service, self._random = service, random.Random(seed)
        self._kinds = ["service", "worker", "head"] + (["disk"] if can_fill else [])
        self._how: dict[str, Callable[[], bool]] = {
            "service": self._kill_service,
            "worker": self._kill_worker,
            "head": self._kill_head,
            "disk": self._fill_disk,
        }
        self._ballast = service.storage / "ballast"
        self._full_until = 0.0
        self.struck: Counter[str] = Counter()

    def strike(self) -> bool:
        """One fault of a kind drawn at random; False when there was nothing of that kind to hit."""
        kind = self._random.choice(self._kinds)
        hit = self._how[kind]()
        self.struck[kind] += hit
        return hit

    def tick(self) -> None:
        """Give the disk back when its time is over."""
        if self._full_until and time.monotonic() > self._full_until:
            self._ballast.unlink(missing_ok=True)
            self._full_until = 0.0

    def end(self) -> None:
        self._full_until = 1e-9
        self.tick()

    def _kill_service(self) -> bool:
        self._service.kill()
        time.sleep(0.3)
        self._service.start()
        return True

    def _kill_worker(self) -> bool:
        pids = []
        for folder in (self._service.storage / "workers").glob("*/alive.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                pids.append(int(json.loads(folder.read_text())["pid"]))
        alive = [pid for pid in pids if _is_worker(pid, self._service.storage)]
        if alive:
            os.kill(self._random.choice(alive), signal.SIGKILL)
        return bool(alive)

    def _kill_head(self) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError, ProcessLookupError):
            record = json.loads((self._service.storage / "service" / "ray.json").read_text())
            os.killpg(int(record["pid"]), signal.SIGKILL)
            return True
        return False

    def _fill_disk(self) -> bool:
        if self._full_until:
            return False
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(b"x" * 65536):
                pass
        self._full_until = time.monotonic() + FULL_SECONDS
        return True


def _is_worker(pid: int, storage: Path) -> bool:
    """Numbers are used again: only a process whose command names this storage is one of ours."""
    try:
        return str(storage).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
