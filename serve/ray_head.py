"""A Ray of our own on this machine, for `python -m serve` with nothing else set up.

The head runs in a session of its own and outlives a killed service; its address is written down, so that the service
that comes next joins it. A clean exit stops it, by the process that was started and no other.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from rayctsl.ports import free_ports
from serve.problems import log
from serve.ray_jobs import RayJobs

START_SECONDS = 90.0
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Head:
    """A head that was started. Example: Head(4711, "81234", "http://127.0.0.1:40123", "/tmp/rayctsl-x1", "…")"""

    pid: int
    born: str  # tells the process from a later one with the same number
    url: str
    temporary: str
    token: str


class RayHead:
    """Starts, finds again and stops the head; keeps a job client pointed at it."""

    def __init__(self, folder: Path, ray: RayJobs):
        self._record, self._log, self._ray = folder / "ray.json", folder / "ray.log", ray
        self._head: Head | None = None
        self._starting: Head | None = None  # begun by us, not yet ready: a stop must find it too
        self._process: subprocess.Popen | None = None
        self._not_before = 0.0

    def ensure(self) -> None:
        """Join the head that is there, or start one."""
        if self._head is not None and self._is_running(self._head):
            return
        if self._head is None and (found := self._recorded()) and self._is_running(found):
            log.info("joining Ray at %s, which an earlier service started", found.url)
            self._use(found)
            return
        if time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + 30.0
        self._clean(self._head or self._recorded())
        self._use(self._start())

    def stop(self) -> None:
        """End the head and everything it started; of one that died and one that begins, the one that begins."""
        head, self._head, self._starting, self._ray.url = self._starting or self._head, None, None, None
        if head is not None:
            self._end(head)

    def _end(self, head: Head) -> None:
        if self._is_running(head):
            os.kill(head.pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while self._is_running(head) and time.monotonic() < deadline:
                time.sleep(0.1)
            if self._is_running(head):
                os.killpg(head.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
        self._clean(head)
        self._record.unlink(missing_ok=True)

    def _use(self, head: Head) -> None:
        self._head, self._starting = head, None
        self._ray.url, self._ray.token = head.url, head.token

    def _start(self) -> Head:
        # Unix sockets live below this folder, and their paths may have 107 characters.
        temporary = tempfile.mkdtemp(prefix="rayctsl-", dir="/tmp")
        token = secrets.token_hex(32)
        gcs, dashboard, agent, agent_grpc, client, metrics, runtime = free_ports(7)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", f"--port={gcs}", f"--temp-dir={temporary}"]
        command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
        command += [f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={agent_grpc}"]
        command += [f"--ray-client-server-port={client}", f"--metrics-export-port={metrics}"]
        command += [f"--runtime-env-agent-port={runtime}"]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAYCTSL_TOKEN")
        }
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1"}
        # Without it Ray turns 127.0.0.1 into the machine's own address and listens there.
        environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        self._record.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        head = Head(self._process.pid, _born(self._process.pid), f"http://127.0.0.1:{dashboard}", temporary, token)
        self._starting = head
        log.info("starting Ray at %s", head.url)
        try:
            self._note(head)
            self._wait_until_ready(head)
        except BaseException:  # nobody would ever find it again
            self._starting = None
            self._end(head)
            raise
        return head

    def _note(self, head: Head) -> None:
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(head), file)

    def _wait_until_ready(self, head: Head) -> None:
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(trust_env=False, timeout=5.0, headers={"Authorization": f"Bearer {head.token}"}) as http:
            while time.monotonic() < deadline:
                if not self._is_running(head):
                    raise RuntimeError(f"Ray did not start; {self._log} says why")
                with contextlib.suppress(httpx.HTTPError):
                    if http.get(f"{head.url}/api/jobs/").status_code == 200:
                        return
                time.sleep(0.2)
        raise RuntimeError(f"Ray did not answer within {START_SECONDS:.0f} s; {self._log} says why")

    def _recorded(self) -> Head | None:
        try:
            return Head(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _is_running(self, head: Head) -> bool:
        if self._process is not None:
            self._process.poll()  # a child that has ended stays in the process table until somebody asks
        return _born(head.pid) == head.born != ""

    def _clean(self, head: Head | None) -> None:
        if head is not None and head.temporary.startswith("/tmp/rayctsl-"):
            shutil.rmtree(head.temporary, ignore_errors=True)


def find_cluster(address: str) -> str:
    """The dashboard's http address of `auto` or an address."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    if address != "auto":
        raise ValueError(f"--address takes http://HOST:8265 (the cluster's dashboard) or auto, not {address}")
    # Ray's own way of finding a cluster, in a process of its own: the service does not import ray.
    code = "from ray.dashboard.utils import get_address_for_submission_client as find; print(find(None))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = found.stdout.split()
    if found.returncode != 0 or not lines or not lines[-1].startswith("http"):
        raise ValueError("--address auto finds no running Ray cluster; start one, or leave --address out")
    return lines[-1].rstrip("/")


def _born(pid: int) -> str:
    """The process's start time, or nothing when there is no such process or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
