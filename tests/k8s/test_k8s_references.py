"""What the manifests refer to exists, what must stay closed is closed, and versions agree with the pins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent.parent
Object = dict[str, Any]
RAY_PORTS = {6379, 8265, 10001, 8080, 52365}


def values_of(tree: Any, key: str) -> Iterator[Any]:
    """Every value under a key, at any depth."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from values_of(value, key)


def names_of(objects: list[Object], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in objects if each["kind"] == kind}


def test_config_maps_claims_and_accounts_are_defined(objects: list[Object]) -> None:
    maps = [
        value["name"] for key in ("configMapRef", "configMapKeyRef", "configMap") for value in values_of(objects, key)
    ]
    claims = [value["claimName"] for value in values_of(objects, "persistentVolumeClaim")]
    accounts = list(values_of(objects, "serviceAccountName"))
    assert maps
    assert accounts
    assert set(maps) == names_of(objects, "ConfigMap")
    assert set(claims) == names_of(objects, "PersistentVolumeClaim")
    assert set(accounts) == names_of(objects, "ServiceAccount")


def test_volumes_and_mounts_fit(objects: list[Object], manifests: ModuleType) -> None:
    for pod in manifests.pods_of(objects):
        claimed = {"data"} if pod.where.startswith("StatefulSet") else set()  # volumeClaimTemplates
        volumes = {volume["name"] for volume in pod.spec.get("volumes", [])} | claimed
        mounted = {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", [])}
        assert mounted == volumes, pod.where


def secrets_used(objects: list[Object]) -> set[tuple[str, str]]:
    """(name, key) of every Secret; the key is empty where all of it is taken."""
    used = {(value["name"], value["key"]) for value in values_of(objects, "secretKeyRef")}
    used |= {(value["name"], value["key"]) for value in values_of(objects, "credentials")}
    used |= {(value["secretName"], "auth_token") for value in values_of(objects, "authOptions")}
    used |= {(value["secretName"], "auth_token") for value in values_of(objects, "secret")}
    return used | {(value["secretName"], "") for tls in values_of(objects, "tls") for value in tls}


def test_secrets_are_referenced_documented_and_never_contained(objects: list[Object], manifests: ModuleType) -> None:
    assert names_of(objects, "Secret") == set()
    readme, script = (ROOT / "k8s/README.md").read_text(), (ROOT / "k8s/secrets.sh").read_text()
    used = secrets_used(objects)
    assert {("rayctsl-ray-token", "auth_token"), ("rayctsl-service-token", "token")} <= used
    for name, key in used:
        assert f"`{name}`" in readme
        assert not key or f"make {name} {key}" in script
    for pod in manifests.pods_of(objects):
        for container in pod.containers:
            for entry in container.get("env", []):
                if re.search(r"(TOKEN|PASSWORD)$", entry["name"]):
                    assert "value" not in entry, f"{entry['name']} in {pod.where} is written down"


def test_no_file_holds_anything_like_a_secret() -> None:
    suspicious = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|eyJ[\w-]{20,}|[0-9a-f]{40,}")
    files = [path for path in (ROOT / "k8s").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 20
    assert [path.name for path in files if suspicious.search(path.read_text())] == []


def matches(selector: Object, labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    wanted = {key: [value] for key, value in selector.get("matchLabels", {}).items()}
    wanted |= {each["key"]: each["values"] for each in expressions}
    return all(labels.get(key) in values for key, values in wanted.items())


def test_every_selector_finds_pods(objects: list[Object], manifests: ModuleType) -> None:
    labels = [pod.labels for pod in manifests.pods_of(objects)] + [{"ray.io/node-type": "redis-cleanup"}]
    for each in objects:
        spec, kind = each.get("spec", {}), each["kind"]
        selectors = []
        if kind == "NetworkPolicy":
            peers = [peer for rule in spec.get("ingress", []) for peer in rule["from"]]
            selectors = [peer["podSelector"] for peer in peers if "namespaceSelector" not in peer]
            selectors.append(spec["podSelector"])
        elif kind in ("PodDisruptionBudget", "PodMonitor"):
            selectors = [spec["selector"]]
        elif kind == "Service":
            selectors = [{"matchLabels": spec["selector"]}]
        for selector in selectors:
            assert any(matches(selector, pod) for pod in labels), (kind, each["metadata"]["name"], selector)
    for each in objects:
        if each["kind"] == "ServiceMonitor":
            services = [other["metadata"].get("labels", {}) for other in objects if other["kind"] == "Service"]
            assert any(matches(each["spec"]["selector"], service) for service in services)


def allowed(objects: list[Object], target: Any, source: Any, port: int) -> bool:
    """Whether some policy lets a pod of this namespace connect to a port of another."""
    for each in objects:
        if each["kind"] != "NetworkPolicy" or not matches(each["spec"]["podSelector"], target.labels):
            continue
        for rule in each["spec"].get("ingress", []):
            from_here = any(
                "namespaceSelector" not in peer and matches(peer["podSelector"], source.labels) for peer in rule["from"]
            )
            if from_here and ("ports" not in rule or any(entry["port"] == port for entry in rule["ports"])):
                return True
    return False


def test_who_may_connect_to_whom(objects: list[Object], manifests: ModuleType) -> None:
    pods = {pod.where: pod for pod in manifests.pods_of(objects)}
    head, worker = pods["RayCluster/rayctsl head"], pods["RayCluster/rayctsl cpu"]
    service, submitter = pods["Deployment/rayctsl-service"], pods["RayJob/train submitter"]
    assert any(each["metadata"]["name"] == "deny-ingress" for each in objects)
    assert allowed(objects, head, worker, 6379)
    assert allowed(objects, worker, worker, 40000)  # gloo and NCCL choose their ports
    for source in (service, submitter):
        assert allowed(objects, head, source, 8265)
        assert not any(allowed(objects, head, source, port) for port in RAY_PORTS - {8265})
        assert not any(allowed(objects, worker, source, port) for port in RAY_PORTS)
    assert not allowed(objects, service, worker, 8000)
    for where, pod in pods.items():
        if where.startswith("StatefulSet"):
            port = pod.containers[0]["ports"][0]["containerPort"]
            users = {other.where for other in pods.values() if allowed(objects, pod, other, port)}
            assert users
            assert users <= {"Deployment/rayctsl-service"} or all(name.endswith("head") for name in users)
            assert not allowed(objects, pod, worker, port)


def test_other_namespaces_reach_ray_only_for_status_and_figures(objects: list[Object]) -> None:
    for each in objects:
        if each["kind"] != "NetworkPolicy":
            continue
        for rule in each["spec"].get("ingress", []):
            assert rule["from"], "an empty list would mean everybody"
            for peer in rule["from"]:
                assert "ipBlock" not in peer
                if "namespaceSelector" in peer:
                    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
                    ports = {entry["port"] for entry in rule["ports"]}
                    assert ports <= {8000, 8080} or each["metadata"]["name"] == "ray-dashboard"


def test_only_the_service_is_exposed(objects: list[Object]) -> None:
    for each in objects:
        if each["kind"] == "Ingress":
            backends = {(value["name"], value["port"]["name"]) for value in values_of(each, "service")}
            assert backends == {("rayctsl", "http")}
        if each["kind"] == "Service":
            assert each["spec"]["type"] == "ClusterIP"
    assert set(values_of(objects, "serviceType")) == {"ClusterIP"}
    assert True not in set(values_of(objects, "enableIngress"))
    assert not any(value for key in ("hostPort", "hostNetwork", "hostPath") for value in values_of(objects, key))


def test_images_and_versions_are_the_pinned_ones(objects: list[Object], manifests: ModuleType) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    tag = f"{version[1]}-ray{pins['ray']}"
    assert set(values_of(objects, "rayVersion")) == {pins["ray"]}
    for pod in manifests.pods_of(objects):
        for container in pod.containers:
            name, _, found = container["image"].partition(":")
            if name.startswith("rayctsl"):
                assert found == tag
                limits = container["resources"]["limits"]
                assert ("nvidia.com/gpu" in limits) == (name == "rayctsl-gpu")
            else:
                assert re.fullmatch(r"\d+\.\d+(\.\d+)?", found), container["image"]
    for build in ("Dockerfile", "README.md"):
        assert f":{tag}" in (ROOT / "k8s" / build).read_text()


def test_pods_keep_to_the_restricted_standard(objects: list[Object], manifests: ModuleType) -> None:
    for pod in manifests.pods_of(objects):
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod.containers:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"]) & set(container["resources"]["requests"])
        if not pod.where.endswith("head"):  # the autoscaler beside the head talks to the API server
            assert pod.spec["automountServiceAccountToken"] is False
    for options in values_of(objects, "autoscalerOptions"):
        assert options["securityContext"]["allowPrivilegeEscalation"] is False


def test_ray_nodes_drain_before_they_are_killed(objects: list[Object], manifests: ModuleType) -> None:
    for pod in manifests.pods_of(objects):
        for container in pod.containers:
            for entry in container.get("env", []):
                if entry["name"] == "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S":
                    assert float(entry["value"]) < pod.spec["terminationGracePeriodSeconds"]


def test_preemptible_nodes_get_learners_only(objects: list[Object], manifests: ModuleType) -> None:
    for spec in [manifests.only(objects, "RayCluster")["spec"], *values_of(objects, "rayClusterSpec")]:
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        for group in spec["workerGroupSpecs"]:
            terms = list(values_of(group["template"], "nodeSelectorTerms"))
            operators = set(values_of(terms, "operator"))
            if "coordinator" in group.get("resources", {}):
                assert operators == {"NotIn"}
                limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
                assert group["resources"]["CPU"] == limits["cpu"]
            if group.get("labels") == {"ray.io/market-type": "spot"}:
                assert operators == {"In"}
    for each in objects:
        if each["kind"] == "RayJob":
            assert each["spec"]["entrypointResources"] == '{"coordinator": 1}'
            assert each["spec"]["rayClusterSpec"] == manifests.only(objects, "RayCluster")["spec"]


def test_sqlite_has_one_user_and_a_server_several(objects: list[Object], manifests: ModuleType) -> None:
    deployment = manifests.only(objects, "Deployment")["spec"]
    (database,) = [word for word in deployment["template"]["spec"]["containers"][0]["args"] if "--database" in word]
    if "sqlite" in database:
        assert deployment["replicas"] == 1
        assert deployment["strategy"] == {"type": "Recreate"}
        assert manifests.only(objects, "PersistentVolumeClaim", "rayctsl-state")["spec"]["accessModes"] == [
            "ReadWriteOnce"
        ]
    else:
        assert deployment["replicas"] > 1
        assert deployment["strategy"]["type"] == "RollingUpdate"
