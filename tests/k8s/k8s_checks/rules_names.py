"""Rules: what the manifests refer to exists, and nothing has a name that means something else to the operator.

A rule takes the objects of a namespace and gives one sentence for everything that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from k8s_checks.manifests import ROOT, Object, names_of, of_kind, pods_of, values_of
from k8s_checks.operator import Pod, cluster_of_job, head_has_token, token_secret

MADE_BY_HAND = {"rayctsl-tls", "rayctsl-registry"}  # a certificate and a login, which no script can invent


def clusters_of(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(name, spec) of every RayCluster, also those that RayJobs make."""
    for each in of_kind(objects, "RayCluster"):
        yield each["metadata"]["name"], each["spec"]
    for each in of_kind(objects, "RayJob"):
        yield cluster_of_job(each["metadata"]["name"]), each["spec"]["rayClusterSpec"]


def config_maps_and_claims_exist(objects: list[Object]) -> Iterator[str]:
    maps = {
        value["name"] for key in ("configMapRef", "configMapKeyRef", "configMap") for value in values_of(objects, key)
    }
    claims = {value["claimName"] for value in values_of(objects, "persistentVolumeClaim")}
    for kind, used, spare in (
        ("ConfigMap", maps, {"rayctsl-dashboard"}),
        ("PersistentVolumeClaim", claims, set[str]()),
    ):
        for name in used - names_of(objects, kind):
            yield f"{kind} {name} is used and not defined"
        for name in names_of(objects, kind) - used - spare:
            yield f"{kind} {name} is defined and not used"


def accounts_exist(objects: list[Object]) -> Iterator[str]:
    defined = names_of(objects, "ServiceAccount")
    used = set(values_of(objects, "serviceAccountName"))
    yield from (f"account {name} is used and not defined" for name in used - defined)
    yield from (f"account {name} is defined and not used" for name in defined - used)


def accounts_do_not_share_a_clusters_name(objects: list[Object]) -> Iterator[str]:
    """Such an account would become the head's, without the operator's rights or token."""
    clusters = {name for name, _ in clusters_of(objects)}
    for name in names_of(objects, "ServiceAccount") & clusters:
        yield f"account {name} has the name of a RayCluster"
    runs = names_of(objects, "RayJob")
    for name in names_of(objects, "ServiceAccount"):
        if any(re.fullmatch(rf"{run}-\w{{5}}", name) for run in runs):
            yield f"account {name} may be taken for a run's cluster"


def autoscaling_heads_have_a_token(objects: list[Object]) -> Iterator[str]:
    accounts = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    for name, spec in clusters_of(objects):
        if not spec.get("enableInTreeAutoscaling"):
            yield f"{name} does not autoscale"
        elif not head_has_token(name, spec, accounts):
            yield f"the autoscaler of {name} has no token for the API server"


def only_heads_have_api_tokens(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        if pod.component != "ray-head" and pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.where} has a token for the API server that it does not need"


def every_cluster_has_a_ray_token_of_its_own(objects: list[Object]) -> Iterator[str]:
    secrets = [token_secret(name, spec) for name, spec in clusters_of(objects)]
    if len(set(secrets)) != len(secrets):
        yield f"clusters share a Ray token: {sorted(secrets)}"
    for name, spec in clusters_of(objects):
        if spec["authOptions"].get("mode") != "token":
            yield f"{name} asks for no token"


def volumes_are_mounted_and_mounts_have_volumes(objects: list[Object]) -> Iterator[str]:
    for pod in pods_of(objects):
        volumes = set(volumes_of(pod, objects))
        mounted = {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", [])}
        for name in volumes ^ mounted:
            yield f"{pod.where}: {name} is {'not mounted' if name in volumes else 'mounted and no volume'}"
        for container in pod.containers:
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            if len(paths) != len(set(paths)):
                yield f"{pod.where}: two mounts at one place"


def volumes_of(pod: Pod, objects: list[Object]) -> dict[str, Object]:
    """A pod's volumes by name; a StatefulSet's claims are volumes too."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    for each in of_kind(objects, "StatefulSet"):
        if pod.where == f"StatefulSet/{each['metadata']['name']}":
            claims = each["spec"]["volumeClaimTemplates"]
            volumes |= {claim["metadata"]["name"]: {"persistentVolumeClaim": {}} for claim in claims}
    return volumes


def secrets_used(objects: list[Object]) -> set[tuple[str, str]]:
    """(name, key) of every Secret; the key is empty where all of it is taken."""
    used = {(value["name"], value["key"]) for value in values_of(objects, "secretKeyRef")}
    used |= {(value["name"], value["key"]) for value in values_of(objects, "credentials")}
    named = [options for options in values_of(objects, "authOptions") if "secretName" in options]
    used |= {(value["secretName"], "auth_token") for value in [*named, *values_of(objects, "secret")]}
    used |= {(value["name"], "") for values in values_of(objects, "imagePullSecrets") for value in values}
    return used | {(value["secretName"], "") for tls in values_of(objects, "tls") for value in tls}


def secrets_are_made_and_documented(objects: list[Object]) -> Iterator[str]:
    script, readme = (ROOT / "k8s/secrets.sh").read_text(), (ROOT / "k8s/README.md").read_text()
    for name, key in secrets_used(objects):
        if name not in MADE_BY_HAND and not re.search(rf"^make {name} {key}$", script, re.MULTILINE):
            yield f"secrets.sh makes no {name} with the key {key}"
        if f"`{name}`" not in readme:
            yield f"README does not name the Secret {name}"


def secrets_are_never_contained(objects: list[Object]) -> Iterator[str]:
    yield from (f"Secret {name} is in the manifests" for name in names_of(objects, "Secret"))
    for pod in pods_of(objects):
        for container in pod.containers:
            for entry in container.get("env", []):
                if re.search(r"(TOKEN|PASSWORD|SECRET|KEY)$", entry["name"]) and "value" in entry:
                    yield f"{pod.where}: {entry['name']} is written down"


def priorities_exist(objects: list[Object]) -> Iterator[str]:
    defined = {each["metadata"]["name"]: each["value"] for each in of_kind(objects, "PriorityClass")}
    for pod in pods_of(objects):
        name = pod.spec.get("priorityClassName")
        if name not in defined:
            yield f"{pod.where} has no priority of ours: {name}"
    if not defined["rayctsl-stay"] > defined["rayctsl-work"] > 0:
        yield "what stays must come before what works"


def claims_name_their_class(objects: list[Object]) -> Iterator[str]:
    templates = [claim for value in values_of(objects, "volumeClaimTemplates") for claim in value]
    for claim in [*of_kind(objects, "PersistentVolumeClaim"), *templates]:
        if claim["spec"].get("storageClassName") in (None, "", "change-me", "from-site"):
            yield f"claim {claim['metadata']['name']} names no storage class"


def images_are_pinned(objects: list[Object]) -> Iterator[str]:
    """Ours by version, others by digest; GPUs go with the image that has the libraries for them."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    version = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    yield from (
        f"rayVersion {each} is not the pinned one" for each in set(values_of(objects, "rayVersion")) - {pins["ray"]}
    )
    for pod in pods_of(objects):
        for container in pod.containers:
            name, _, tag = container["image"].partition(":")
            if name not in ("rayctsl", "rayctsl-gpu"):
                if not re.search(r"@sha256:[0-9a-f]{64}$", container["image"]):
                    yield f"{pod.where}: {container['image']} is not named by its digest"
            elif tag != f"{version}-ray{pins['ray']}":
                yield f"{pod.where}: {container['image']} has another tag"
            elif "nvidia.com/gpu" in container["resources"]["limits"] and name != "rayctsl-gpu":
                yield f"{pod.where}: a GPU with an image for CPUs"


def nothing_is_left_to_fill_in(objects: list[Object]) -> Iterator[str]:
    if "from-site" in str(objects):
        yield "a value of site.yaml did not reach its place"
