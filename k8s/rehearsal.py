"""Run the entry points of the manifests on this machine, with the head killed in between.

    python k8s/rehearsal.py [--overlay local-cpu] [--only train|input|data|service|sweep] [--read-only-root]

A head and a worker node are started with `ray start` and token authentication, with the resources and variables of the
RayCluster; jobs are submitted with the operator's command line. What is changed in the manifests' commands: mount
points become folders, host names and ports become free ports of the loopback interface. The sweep has one beta for each
method and a sixth of the steps. It takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rehearsal_nodes import Cluster, Manifests, Object, free_ports, read_only, say, wait_for


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


def rehearse_bad_input(manifests: Manifests, cluster: Cluster) -> None:
    """A run that cannot be: its job must be stopped, which the operator does not try again, and not failed."""
    job = manifests.only("RayJob", "train")
    spoilt = {"spec": {**job["spec"], "entrypoint": f"{job['spec']['entrypoint']} --set inner_steps=-1"}}
    cluster.submit(spoilt, "input-1")
    ended = wait_for(
        "the job ends", lambda: (s := cluster.status("input-1")) in ("STOPPED", "FAILED", "SUCCEEDED") and s
    )
    lines = cluster.log("input-1").strip().splitlines()
    said = next((line for line in lines if "inner_steps" in line and not line.startswith("Running")), "")
    if ended != "STOPPED" or not said:
        raise SystemExit(f"bad input ended as {ended}: {lines[-20:]}")
    say(f"bad input ends as {ended}: {said}")


def rehearse_waiting(manifests: Manifests, cluster: Cluster) -> None:
    """The container that waits for data, for a dataset that is brought while it waits."""
    job = Manifests("gpu", manifests.folder / "gpu").only("RayJob", "train")
    (container,) = job["spec"]["submitterPodTemplate"]["spec"]["initContainers"]
    environment = cluster.environment(manifests.cluster["headGroupSpec"])
    log = manifests.folder / "waiting.log"
    with log.open("ab") as output:
        waiting = subprocess.Popen([*container["command"], "brought"], env=environment, stdout=output, stderr=output)
    try:
        wait_for("it has looked once", lambda: "brought" in log.read_text())
        say(f"it waits: {log.read_text().splitlines()[0]}")
        make = "import numpy, sys; x = numpy.zeros((40, 8, 8, 3), 'uint8'); y = numpy.arange(40) % 2; "
        make += "numpy.savez(sys.argv[1], x_train=x, y_train=y, x_test=x, y_test=y)"
        archive = str(manifests.folder / "brought.npz")
        subprocess.run([sys.executable, "-c", make, archive], env=environment, check=True)
        bring = ["python", "-m", "rayctsl.data", "import", "brought", "--from", archive]
        subprocess.run(bring, env=environment, check=True, stdout=subprocess.DEVNULL)
        if waiting.wait(300) != 0:
            raise SystemExit(f"it did not see the data: {log.read_text()[-1000:]}")
        say(f"it goes on: {log.read_text().splitlines()[-1]}")
    finally:
        waiting.kill()


def newest_snapshot(run: Path) -> str | None:
    """The newest whole snapshot of a run, once there is one beyond its beginning."""
    steps = sorted(path.parent.name for path in run.glob("checkpoints/step-*/*.json"))
    return steps[-1] if len(steps) > 1 else None


def shorten_sweep(manifests: Manifests) -> None:
    """The sweep's file with every third of its methods, and 100 inner steps and one validation for each trial."""
    file = Path(manifests.place("/etc/rayctsl/sweeps/smoke.yaml"))
    sweep = yaml.safe_load(file.read_text())
    sweep["search"]["method"]["grid"] = sweep["search"]["method"]["grid"][::3]
    sweep |= {"budget": 100, "report_every": 100, "validation": sweep["validation"] | {"steps": 10, "seeds": 1}}
    file.write_text(yaml.safe_dump(sweep))


def rehearse_sweep(manifests: Manifests, cluster: Cluster) -> None:
    shorten_sweep(manifests)
    rehearse_job("sweep", manifests, cluster, finished_trials, "results:")


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
        process = subprocess.Popen(
            cluster.wrap([*container["command"], *arguments]), env=environment, stdout=log, stderr=log
        )
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


PARTS: dict[str, Callable[[Manifests, Cluster], None]] = {
    "train": lambda m, c: rehearse_job("train", m, c, newest_snapshot, "continuing at inner step"),
    "input": rehearse_bad_input,
    "data": rehearse_waiting,
    "service": rehearse_service,
    "sweep": rehearse_sweep,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the manifests' entry points here, the head killed in between.")
    parser.add_argument("--overlay", default="local-cpu")
    parser.add_argument("--only", choices=tuple(PARTS), help="one part; for the service --keep what train left")
    parser.add_argument("--read-only-root", action="store_true", help="nodes and service may write to /tmp only")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work here and leave it, with all logs")
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="rayctsl-rehearsal-"))).resolve()
    manifests = Manifests(options.overlay, folder)
    cluster = Cluster(manifests, read_only if options.read_only_root else list)
    try:
        cluster.start()
        for name, part in PARTS.items():
            if options.only in (None, name):
                part(manifests, cluster)
    finally:
        cluster.kill()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    say("everything went as the manifests say")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
