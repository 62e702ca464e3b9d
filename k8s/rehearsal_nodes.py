"""The manifests on one machine: their mount points as folders, the RayCluster as two nodes. Used by rehearsal.py."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parent.parent
Object = dict[str, Any]
PATIENCE_SECONDS = 5400.0  # a busy machine takes its time
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if result := condition():
                return result
        time.sleep(0.5)
    raise SystemExit(f"it did not happen: {what}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def read_only(command: list[str]) -> list[str]:
    """The command with the root file system read-only but for /tmp, as in the pods. Needs root."""
    script = 'mount --make-rprivate / && mount --bind /tmp /tmp && mount -o remount,bind,ro / && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "read-only", *command]


class Manifests:
    """One rendered overlay and its runs, their mount points moved below a folder."""

    def __init__(self, overlay: str, folder: Path):
        folders = [ROOT / "k8s" / "overlays" / overlay, *sorted((ROOT / "k8s" / "runs" / overlay).iterdir())]
        self.objects: list[Object] = [each for place in folders for each in _render(place)]
        self.folder = folder
        self.cluster = self.only("RayCluster", "rayctsl")["spec"]
        self.pod = self.only("Deployment", "rayctsl-service")["spec"]["template"]["spec"]
        head = self.cluster["headGroupSpec"]["template"]["spec"]
        mounts = [mount for pod in (head, self.pod) for mount in pod["containers"][0]["volumeMounts"]]
        points = sorted({mount["mountPath"] for mount in mounts} - {"/tmp"}, key=len, reverse=True)
        self._points = re.compile(rf"(?<![\w.])({'|'.join(points)})(?![\w-])")
        self._write_configs(head)
        self.environment = {
            name: self.place(value) for name, value in self.only("ConfigMap", "rayctsl-environment")["data"].items()
        }

    def only(self, kind: str, name: str) -> Object:
        (found,) = [each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
        return found

    def place(self, text: str) -> str:
        """Mount points as folders. Example: --run-dir /artifacts/x -> --run-dir /tmp/r1/artifacts/x"""
        return self._points.sub(lambda match: f"{self.folder}{match[1]}", text)

    def _write_configs(self, pod: Object) -> None:
        maps = {volume["name"]: volume.get("configMap") for volume in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            target = Path(self.place(mount["mountPath"]))
            if not (source := maps[mount["name"]]):
                target.mkdir(parents=True, exist_ok=True)
                continue
            data = self.only("ConfigMap", source["name"])["data"]
            files = {target: data[mount["subPath"]]} if "subPath" in mount else {target / n: t for n, t in data.items()}
            for file, content in files.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)


def _render(folder: Path) -> list[Object]:
    program = shutil.which("kubectl") or str(Path(sys.executable).parent / "kubectl")
    text = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, check=True).stdout
    return list(yaml.safe_load_all(text))


class Cluster:
    """The RayCluster as two nodes on this machine; restarted at the same address, as behind its Kubernetes Service."""

    def __init__(self, manifests: Manifests, wrap: Callable[[list[str]], list[str]]):
        self.manifests, self.token, self.wrap = manifests, secrets.token_hex(32), wrap
        self.gcs, self.dashboard = free_ports(2)
        self.url = f"http://127.0.0.1:{self.dashboard}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.temporary = ""

    def environment(self, group: Object) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RAYCTSL_"))}
        container = group["template"]["spec"]["containers"][0]
        own = {entry["name"]: self.manifests.place(entry["value"]) for entry in container["env"]}
        path = f"{Path(sys.executable).parent}:{inherited['PATH']}"  # `python` and `ray`, as in the image
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}  # what the operator adds for authOptions
        return {**inherited, **self.manifests.environment, **own, **auth, "PATH": path, "PYTHONPATH": str(ROOT)}

    def start(self) -> None:
        spec = self.manifests.cluster
        self.temporary = tempfile.mkdtemp(prefix="rehearsal-", dir="/tmp")  # sockets below it need short paths
        parameters = {**spec["headGroupSpec"]["rayStartParams"], "dashboard-host": "127.0.0.1"}
        head = [f"--{name}={value}" for name, value in parameters.items()]
        head += ["--head", f"--port={self.gcs}", f"--dashboard-port={self.dashboard}", f"--temp-dir={self.temporary}"]
        head += [f"--ray-client-server-port={free_ports(1)[0]}"]
        self._start_node("head", spec["headGroupSpec"], head, 1)
        group = spec["workerGroupSpecs"][0]
        resources = dict(group["resources"])
        worker = [f"--address=127.0.0.1:{self.gcs}", f"--num-cpus={resources.pop('CPU')}"]
        worker += [f"--resources={json.dumps({name: float(amount) for name, amount in resources.items()})}"]
        self._start_node("worker", group, worker, 2)
        assert httpx.get(f"{self.url}/api/jobs/", trust_env=False).status_code == 401  # the token is needed
        say("a head and a worker node are up, with token authentication")

    def _start_node(self, name: str, group: Object, options: list[str], wanted: int) -> None:
        """Start a node, and again when it gives up after 30 s on a busy machine, as the operator would."""

        def is_up() -> bool:
            if self.nodes[-1].poll() is not None:
                say(f"the {name} gave up; starting it again")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.nodes[-1].pid, signal.SIGKILL)  # what it may have left behind
                self.nodes[-1] = self._spawn(name, group, options)
            return self.count_nodes() >= wanted

        self.nodes.append(self._spawn(name, group, options))
        wait_for(f"the {name} is up", is_up)

    def _spawn(self, name: str, group: Object, options: list[str]) -> subprocess.Popen[bytes]:
        agent, agent_grpc, metrics, runtime = free_ports(4)  # two nodes on one host need ports of their own
        ports = ["--node-ip-address=127.0.0.1", f"--dashboard-agent-listen-port={agent}"]
        ports += [f"--dashboard-agent-grpc-port={agent_grpc}", f"--metrics-export-port={metrics}"]
        ports += [f"--runtime-env-agent-port={runtime}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=200000000"]
        with (self.manifests.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                self.wrap([*command, *options, *ports]),
                env=self.environment(group),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def count_nodes(self) -> int:
        """Nodes that are alive, as the job server's dashboard sees them."""
        answer = self.ask("GET", "/api/v0/nodes")
        nodes = answer.json()["data"]["result"]["result"] if answer.status_code == 200 else []
        return sum(node["state"] == "ALIVE" for node in nodes)

    def kill(self) -> None:
        """As a power cut of the head's machine; the operator then clears the workers away too."""
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        self.nodes = []
        for pid in _processes_below(self.temporary):  # what Ray started in groups of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def ask(self, method: str, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(method, self.url + path, headers=headers, timeout=20.0, trust_env=False)

    def submit(self, job: Object, submission: str) -> None:
        """As the operator's submitter pod does: the entry point is read by its shell."""
        spec = job["spec"]
        command = f"ray job submit --no-wait --address {self.url} --submission-id {submission} --entrypoint-resources "
        command += f"{shlex.quote(spec['entrypointResources'])} -- {self.manifests.place(spec['entrypoint'])}"
        environment = self.environment(self.manifests.cluster["headGroupSpec"])
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the job was not taken: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        say(f"submitted as {submission}: {spec['entrypoint']}")

    def status(self, submission: str) -> str:
        return str(self.ask("GET", f"/api/jobs/{submission}").json()["status"])

    def log(self, submission: str) -> str:
        return str(self.ask("GET", f"/api/jobs/{submission}/logs").json()["logs"])


def _processes_below(folder: str) -> Iterator[int]:
    """Processes whose command line or environment names a folder that only this rehearsal knows."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if folder.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    yield int(entry.name)
