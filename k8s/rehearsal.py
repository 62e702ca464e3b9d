"""Run the entry points of the manifests on this machine, with the head killed in between.

    python k8s/rehearsal.py [--overlay local-cpu] [--only train|service|sweep]

A head and a worker node are started with `ray start` and token authentication, with the resources and variables of the
RayCluster; jobs are submitted with the operator's command line. What is changed in the manifests' commands: mount
points become folders, host names and ports become free ports of the loopback interface. It takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
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
sys.path.insert(0, str(ROOT))
from serve.ray_head import free_ports  # noqa: E402

Object = dict[str, Any]
PATIENCE_SECONDS = 1200.0
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


class Manifests:
    """One rendered overlay, its mount points moved below a folder."""

    def __init__(self, overlay: str, folder: Path):
        command = ["kubectl", "kustomize", str(ROOT / "k8s" / "overlays" / overlay)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.objects: list[Object] = list(yaml.safe_load_all(text))
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


class Cluster:
    """The RayCluster as two nodes on this machine; restarted at the same address, as behind its Kubernetes Service."""

    def __init__(self, manifests: Manifests):
        self.manifests, self.token = manifests, secrets.token_hex(32)
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
                [*command, *options, *ports],
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


def rehearse_job(
    name: str, manifests: Manifests, cluster: Cluster, has_begun: Callable[[Path], Any], said: str
) -> None:
    """A RayJob whose cluster is lost once it has begun: the second attempt must reach the end, and print `said`."""
    job = manifests.only("RayJob", name)
    found = re.search(r"--run-dir \$RAYCTSL_STORAGE/(\S+)", job["spec"]["entrypoint"])
    assert found is not None
    run = Path(manifests.environment["RAYCTSL_STORAGE"]) / found[1]

    def begun() -> Any:
        if cluster.status(f"{name}-1") in ("FAILED", "STOPPED"):
            raise SystemExit(f"{name} failed: {cluster.log(f'{name}-1')[-2000:]}")
        return has_begun(run)

    cluster.submit(job, f"{name}-1")
    progress = wait_for(f"{name} has begun", begun)
    cluster.kill()
    say(f"killed the head; on the storage: {progress}")
    cluster.start()
    cluster.submit(job, f"{name}-2")
    ended = wait_for(f"{name} ends", lambda: (s := cluster.status(f"{name}-2")) in ("SUCCEEDED", "FAILED") and s)
    log = cluster.log(f"{name}-2")
    if ended != "SUCCEEDED" or not re.search(f"^{said}", log, re.MULTILINE):
        raise SystemExit(f"{name} ended as {ended}: {log[-3000:]}")
    for line in re.findall(f"^(?:{said}|initialization:).*", log, re.MULTILINE):
        say(line.replace(str(manifests.folder), ""))


def newest_snapshot(run: Path) -> str | None:
    """The newest whole snapshot of a run, once there is one beyond its beginning."""
    steps = sorted(path.parent.name for path in run.glob("checkpoints/step-*/*.json"))
    return steps[-1] if len(steps) > 1 else None


def finished_trials(run: Path) -> str | None:
    records = [json.loads(path.read_text()) for path in run.glob("trials/*/trial.json")]
    count = sum(record["status"] == "finished" for record in records)
    return f"{count} finished trials" if count else None


@contextlib.contextmanager
def service(manifests: Manifests, cluster: Cluster) -> Iterator[httpx.Client]:
    """The service's container as a process."""
    container, token = manifests.pod["containers"][0], secrets.token_hex(32)
    (port,) = free_ports(1)
    moved = {"--host": "127.0.0.1", "--port": str(port), "--address": cluster.url}
    arguments = []
    for word in container["args"]:
        for name, value in manifests.environment.items():
            word = word.replace(f"$({name})", value)
        flag, _, value = word.partition("=")
        arguments.append(f"{flag}={moved.get(flag, manifests.place(value) if '://' in value else value)}")
    environment = cluster.environment(manifests.cluster["headGroupSpec"])
    del environment["RAY_AUTH_TOKEN"]  # the pod has the file only
    environment |= {"RAYCTSL_TOKEN": token}
    environment |= {e["name"]: manifests.place(e["value"]) for e in container["env"] if "value" in e}
    for mount in container["volumeMounts"]:
        Path(manifests.place(mount["mountPath"])).mkdir(parents=True, exist_ok=True)
    Path(environment["RAY_AUTH_TOKEN_PATH"]).write_text(cluster.token)
    with (manifests.folder / "service.log").open("ab") as log:
        process = subprocess.Popen([*container["command"], *arguments], env=environment, stdout=log, stderr=log)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, trust_env=False) as client:
            path = container["readinessProbe"]["httpGet"]["path"]
            wait_for("the service is ready", lambda: client.get(path).status_code == 200)
            say(f"the service is ready: {' '.join(container['command'])} {' '.join(container['args'])}")
            yield client
    finally:
        process.terminate()
        process.wait(60)


def rehearse_service(manifests: Manifests, cluster: Cluster) -> None:
    """A job posted to the service, its cluster lost while it runs."""
    with service(manifests, cluster) as client:
        answer = client.post("/finetune", json={"dataset": "georgian", "steps": 1500, "batch_size": 32})
        if answer.status_code != 202:
            raise SystemExit(f"POST /finetune answers {answer.status_code}: {answer.text}")
        job = answer.json()["id"]
        say(f"POST /finetune: job {job} from initialization {answer.json().get('initialization')}")

        def look() -> Object:
            found: Object = client.get(f"/finetune/{job}").json()
            if found["status"] in ("failed", "cancelled"):
                raise SystemExit(f"the job ended as {found['status']}: {found.get('error')}")
            return found

        wait_for("the job runs", lambda: look()["status"] in ("running", "succeeded"))
        cluster.kill()
        say(f"killed the head while the job is {look()['status']}")
        degraded = wait_for("the loss is noticed", lambda: (r := client.get("/readyz").json())["ray"] == "down" and r)
        say(f"GET /readyz: {json.dumps(degraded)}; GET /initializations: {client.get('/initializations').status_code}")
        cluster.start()
        wait_for("the job ends", lambda: look()["status"] == "succeeded")
        found = look()
        say(f"job {job} {found['status']}, result {json.dumps(found['result'])[:120]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the manifests' entry points here, the head killed in between.")
    parser.add_argument("--overlay", default="local-cpu")
    parser.add_argument(
        "--only", choices=("train", "service", "sweep"), help="one part; for the service --keep what train left"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work here and leave it, with all logs")
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="rayctsl-rehearsal-"))).resolve()
    manifests = Manifests(options.overlay, folder)
    cluster = Cluster(manifests)
    try:
        cluster.start()
        if options.only in (None, "train"):
            rehearse_job("train", manifests, cluster, newest_snapshot, "continuing at inner step")
        if options.only in (None, "service"):
            rehearse_service(manifests, cluster)
        if options.only in (None, "sweep"):
            rehearse_job("sweep", manifests, cluster, finished_trials, "results:")
    finally:
        cluster.kill()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    say("everything went as the manifests say")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
