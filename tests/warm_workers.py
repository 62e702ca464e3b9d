"""Ray workers of the session's cluster that need not import torch, which takes two CPU seconds each time.

Ray starts a worker by a Python file of its own that prepares the environment and then begins Python anew
(`setup_worker_path` of a node). This file takes its place: it asks a process that has imported torch for a fork of
itself, which becomes the worker by running Ray's own `default_worker.py` with the same arguments, environment and
pipes, and waits for its end. That process computes nothing and starts no thread, so that a fork is as good as new.
Linux only; elsewhere, and where lines of code are counted, Ray's own way is taken.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys

ADDRESS = "RAYCTSL_WARM_WORKERS"  # the environment's name for where forks are asked for
ENVIRONMENT = "--serialized-runtime-env-context="
# Everything but Ray, which reads a worker's environment when it is imported.
IMPORTED = ("rayctsl.models", "rayctsl.learning.validation", "torch.distributed", "pandas", "requests", "jsonschema")


class WarmWorkers:
    """Forks on demand, until it is closed.

    Example: with WarmWorkers() as warm: cluster.add_node(**warm.options)
    """

    options: dict[str, str]  # of nodes

    def __enter__(self) -> WarmWorkers:
        import subprocess
        import uuid

        from tests.processes import lines_are_counted

        self.options = {}
        if sys.platform != "linux" or lines_are_counted():
            return self
        os.environ[ADDRESS] = f"rayctsl-{uuid.uuid4().hex}"
        self.options["setup_worker_path"] = __file__
        with _unix_socket() as door:
            door.bind(f"\0{os.environ[ADDRESS]}")
            door.listen(64)  # workers that are asked for meanwhile wait
            command = [sys.executable, __file__, "serve", str(door.fileno())]
            self.server = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=[door.fileno()],
                env={**os.environ, "JE_ARROW_MALLOC_CONF": "background_thread:false"},  # no thread of pyarrow's
                start_new_session=True,
            )
        return self

    def __exit__(self, *unused: object) -> None:
        if self.options:
            self.server.communicate()  # the end of its input is the end of its work
            del os.environ[ADDRESS]


def _unix_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def serve(door: socket.socket) -> None:
    """In the process that is forked: returns at the end of its input, and in every fork as a worker that has ended."""
    import importlib
    import signal

    for name in IMPORTED:
        importlib.import_module(name)
    assert "ray" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    while 0 not in select.select([door, 0], [], [])[0]:
        asked, _ = door.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # Ray ends a worker with its group
            door.close()
            become_worker(asked)  # who keeps `asked` open as long as it lives
            return
        asked.close()


def become_worker(asked: socket.socket) -> None:
    import runpy

    message, pipes, _, _ = socket.recv_fds(asked, 1 << 20, 3)
    order = json.loads(message)
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["arguments"]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))  # as Python does
    runpy.run_path(sys.argv[0], run_name="__main__")


def ask_for_worker(arguments: list[str], variables: dict[str, str]) -> bool:
    """In the process that Ray started: returns when the worker has ended; False if nobody is there to ask."""
    kept = [each for each in arguments if not each.startswith(("--language=", ENVIRONMENT))]
    order = {"folder": os.getcwd(), "environment": {**os.environ, **variables}, "arguments": kept}
    with _unix_socket() as asked:
        try:
            asked.connect(f"\0{os.environ[ADDRESS]}")
        except OSError:
            return False
        socket.send_fds(asked, [json.dumps(order).encode()], [0, 1, 2])
        asked.recv(1)
    return True


def own_variables(arguments: list[str]) -> dict[str, str] | None:
    """What a Python worker has in its environment by itself, as Tune's trials have; None where it wants more of its own
    than variables that Ray reads: a fork has read all others already."""
    given = [each.removeprefix(ENVIRONMENT) for each in arguments if each.startswith(ENVIRONMENT)]
    context = json.loads(given[0]) if given else {}
    variables = context.pop("env_vars", {})
    ordinary = context.pop("py_executable", sys.executable) == sys.executable and not any(context.values())
    ordinary = ordinary and all(name.startswith(("RAY_", "PL_")) for name in variables)
    return variables if ordinary and arguments[0].endswith("default_worker.py") else None


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    if sys.argv[1] == "serve":
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # this checkout, wherever it is
        serve(socket.socket(fileno=int(sys.argv[2])))
    elif (own := own_variables(sys.argv[1:])) is None or not ask_for_worker(sys.argv[1:], own):
        from ray._private.workers import setup_worker

        os.execv(sys.executable, [sys.executable, setup_worker.__file__, *sys.argv[1:]])
