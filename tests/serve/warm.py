"""Services in processes that are forked from one that has loaded everything: their imports are paid for once."""

from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import suppress
from time import monotonic, sleep

import httpx
import uvicorn  # noqa: F401 - loaded for the services

from serve import app, keys_command, protocol  # noqa: F401 - likewise
from serve.__main__ import main
from serve.bench.instance import Instance

FORKS = multiprocessing.get_context("forkserver")


def _serve(words: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(words))


class WarmInstance(Instance):
    """What `python -m serve` does with the same words, without the 1.5 CPU seconds that its imports take."""

    def start(self, wait_seconds: float = 120.0) -> None:
        FORKS.set_forkserver_preload([__name__])
        words = self._command[self._command.index("serve") + 1 :]
        self._fork = FORKS.Process(target=_serve, args=(words, self._environment, str(self.log)))
        self._fork.start()
        deadline = monotonic() + wait_seconds
        with httpx.Client(base_url=self.url, timeout=2.0, trust_env=False) as client:
            while monotonic() < deadline and self._fork.is_alive():
                with suppress(httpx.HTTPError):
                    if client.get("/livez").status_code == 200:
                        return
                sleep(0.05)
        raise RuntimeError(f"the service did not start: {self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        self._fork.kill()
        self._fork.join()

    def stop(self) -> int:
        self._fork.terminate()
        self._fork.join(60)
        assert self._fork.exitcode is not None, "the service did not stop"
        return self._fork.exitcode
