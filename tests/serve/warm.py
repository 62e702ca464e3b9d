"""Services in processes that are forked from one that has loaded everything: their imports are paid for once."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import uvicorn  # noqa: F401 - loaded for the services

from serve import app, keys_command, protocol  # noqa: F401 - likewise
from serve.__main__ import main
from serve.bench.instance import Instance
from tests.processes import lines_are_counted

FORKS = multiprocessing.get_context("forkserver")


def _serve(words: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(words))


class Fork:
    """A forked process that is asked as a `subprocess.Popen` is."""

    def __init__(self, *arguments: Any) -> None:
        FORKS.set_forkserver_preload([__name__])
        self._process = FORKS.Process(target=_serve, args=arguments)
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, signum)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "the service did not stop"
        return self._process.exitcode


class WarmInstance(Instance):
    """What `python -m serve` does with the same words, without the 1.5 CPU seconds that its imports take."""

    def _launch(self) -> Any:
        if lines_are_counted():
            return super()._launch()
        return Fork(self._command[self._command.index("serve") + 1 :], self._environment, str(self.log))
