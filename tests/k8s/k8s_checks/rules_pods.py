"""Rules: how pods may run, what they may use, and where they may be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from k8s_checks.manifests import Object, of_kind, pods_of, values_of
from k8s_checks.operator import Pod, health_check, millis, node_resources
from k8s_checks.rules_names import clusters_of, volumes_of

NODE_MILLIS, NODE_BYTES = 3500, int(12.9 * 2**30)  # what a node of 4 CPUs and 16 GB leaves for pods
STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
PREEMPTIBLE = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
UNITS = {"": 1, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size(quantity: str) -> int:
    """Bytes. Example: "512Mi" -> 536870912"""
    found = re.fullmatch(r"(\d+)(\D*)", quantity)
    assert found is not None, quantity
    return int(found[1]) * UNITS[found[2]]


def pods_keep_to_the_restricted_standard(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        context = pod.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{pod.where}: runAsNonRoot or seccompProfile is missing"
        if any(context.get(name, 1000) == 0 for name in ("runAsUser", "runAsGroup", "fsGroup")):
            yield f"{pod.where} runs as root"
        for container in pod.containers:
            yield from (f"{pod.where}, {container['name']}: {what}" for what in _container_faults(container))
    for key in ("hostPath", "hostPort", "hostNetwork", "hostPID", "hostIPC"):
        yield from (f"{key} is used" for value in values_of(objects, key) if value)


def _container_faults(container: Object) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
        yield "it may gain rights"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "it keeps capabilities"
    if context.get("runAsUser", 1000) == 0 or context.get("runAsNonRoot") is False:
        yield "it runs as root"
    if "seccompProfile" in context or "procMount" in context:
        yield "it has a profile of its own"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "its root file system can be written"


def programs_can_write_where_they_must(objects: list[Object]) -> Iterator[str]:
    """With a read-only root: a /tmp of its own for Python, and for our own programs a HOME that is mounted."""
    environments = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    for pod in pods_of(objects):
        for container in pod.containers:
            if not container["image"].startswith("rayctsl"):
                continue
            mounts = {mount["mountPath"] for mount in container.get("volumeMounts", []) if not mount.get("readOnly")}
            if "/tmp" not in mounts:
                yield f"{pod.where}, {container['name']}: no /tmp to write to"
            maps = [environments.get(value["name"], {}) for value in values_of(container, "configMapRef")]
            named = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
            home = named.get("HOME") or next((each["HOME"] for each in maps if "HOME" in each), None)
            if container["name"] != "wait-gcs-ready" and home not in mounts:  # the operator drops envFrom there
                yield f"{pod.where}, {container['name']}: HOME {home} cannot be written"


def containers_ask_and_are_limited(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        for container in pod.containers:
            wanted = {"cpu", "memory"} | ({"ephemeral-storage"} if container["name"] != "wait-gcs-ready" else set())
            for part in ("requests", "limits"):
                if missing := wanted - set(container["resources"].get(part, {})):
                    yield f"{pod.where}, {container['name']}: no {part} of {sorted(missing)}"


def pods_fit_a_common_node(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        asked = [container["resources"]["requests"] for container in pod.spec["containers"]]
        cpu, memory = sum(millis(each["cpu"]) for each in asked), sum(size(each["memory"]) for each in asked)
        if cpu > NODE_MILLIS or memory > NODE_BYTES:
            yield f"{pod.where} asks for {cpu / 1000} CPUs and {memory / 2**30:.1f} GiB: no common node has them"


def what_must_stay_is_not_disrupted(objects: list[Object]) -> Iterator[str]:
    moved_freely = ("service", "submitter")  # back in seconds, with nothing lost
    for pod in pods_of(objects):
        if pod.component not in moved_freely and not STAY.items() <= pod.annotations.items():
            yield f"{pod.where} may be moved by an autoscaler of nodes"


def _excluded(pod: Pod) -> set[tuple[str, str]]:
    """(label, value) of nodes that every term of a pod's affinity shuts out."""
    terms = [term["matchExpressions"] for value in values_of(pod.spec, "nodeSelectorTerms") for term in value]
    shut = [{(e["key"], v) for e in term if e["operator"] == "NotIn" for v in e["values"]} for term in terms]
    return set.intersection(*shut) if shut else set()


def only_the_spot_group_is_preemptible(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        if pod.labels.get("ray.io/market-type") != "spot":
            if missing := set(PREEMPTIBLE.items()) - _excluded(pod):
                yield f"{pod.where} may be placed on preemptible nodes: {sorted(missing)}"
            continue
        terms = [term["matchExpressions"] for value in values_of(pod.spec, "nodeSelectorTerms") for term in value]
        wanted = {
            (e["key"], e["values"][0]) for term in terms for e in term if e["operator"] == "In" and len(term) == 1
        }
        if wanted != set(PREEMPTIBLE.items()):
            yield f"{pod.where} may be placed elsewhere than on preemptible nodes"


def drivers_stay_off_preemptible_nodes(objects: list[Object]) -> Iterator[str]:
    for name, spec in clusters_of(objects):
        if node_resources(spec["headGroupSpec"])["CPU"] != 0:
            yield f"work may be placed on the head of {name}"
        coordinators = {g["groupName"] for g in spec["workerGroupSpecs"] if "coordinator" in node_resources(g)}
        if coordinators != {"cpu"}:
            yield f"drivers of {name} may be placed on {sorted(coordinators)}"
    for each in of_kind(objects, "RayJob"):
        if each["spec"].get("entrypointResources") != '{"coordinator": 1}':
            yield f"the driver of {each['metadata']['name']} may be placed anywhere"


def groups_tell_ray_what_they_have(objects: list[Object]) -> Iterator[str]:
    for name, spec in clusters_of(objects):
        if health_check(spec) != "http":
            yield f"{name}: the operator's health check would need wget in the image"
        for group in spec["workerGroupSpecs"]:
            limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
            told = node_resources(group)
            if told["CPU"] * 1000 > millis(limits["cpu"]) or told.get("GPU", 0) != float(
                limits.get("nvidia.com/gpu", 0)
            ):
                yield f"{name}, {group['groupName']}: Ray is told {told}, the limits say {limits}"


def nodes_drain_before_they_are_killed(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        given = {entry["name"]: entry.get("value") for entry in pod.spec["containers"][0].get("env", [])}
        drain = given.get("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S")
        if pod.component in ("ray-head", "ray-worker") and drain is None:
            yield f"{pod.where} does not say how long it drains"
        elif drain is not None and float(drain) >= pod.spec["terminationGracePeriodSeconds"]:
            yield f"{pod.where} is killed before it has drained"


def logs_are_rotated(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        if pod.component not in ("ray-head", "ray-worker"):
            continue
        given = {entry["name"]: entry.get("value", "") for entry in pod.spec["containers"][0]["env"]}
        kept = int(given.get("RAY_ROTATION_MAX_BYTES", 0)) * (1 + int(given.get("RAY_ROTATION_BACKUP_COUNT", 0)))
        if not 0 < kept <= 200_000_000:
            yield f"{pod.where}: a log may grow to {kept or 'any size'}"


def stores_keep_their_data_on_their_volume(objects: list[Object]) -> Iterator[str]:
    """Redis' --dir, PostgreSQL's PGDATA and the service's SQLite file lie on a claim."""
    for pod in pods_of(objects):
        container = pod.spec["containers"][0]
        args, given = container.get("args", []), {e["name"]: e.get("value", "") for e in container.get("env", [])}
        places = [args[args.index("--dir") + 1]] if "--dir" in args else []
        places += [given["PGDATA"]] if "PGDATA" in given else []
        places += [word.partition("sqlite:///")[2] for word in args if "sqlite:///" in word]
        for place in places:
            if not _is_claimed(place, pod, objects):
                yield f"{pod.where}: {place} is lost with the pod"
        if pod.component in ("redis", "postgres") and not places:
            yield f"{pod.where} does not say where its data is"


def _is_claimed(place: str, pod: Pod, objects: list[Object]) -> bool:
    volumes = volumes_of(pod, objects)
    mounts = pod.spec["containers"][0].get("volumeMounts", [])
    holding = [mount for mount in mounts if f"{place}/".startswith(f"{mount['mountPath']}/")]
    holding.sort(key=lambda mount: len(mount["mountPath"]))
    return bool(holding) and "persistentVolumeClaim" in volumes.get(holding[-1]["name"], {})
