"""What KubeRay v1.7.0 makes of a RayCluster or RayJob, and Kubernetes of a token, as small pure functions.

The lines of the operator's source that each replays are in `sources.py`, under the function's name.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
HEAD_GROUP = "headgroup"
TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class Pod:
    """A pod as it will run. Example: Pod("RayCluster/rayctsl head", {...labels}, {...annotations}, {...spec})"""

    where: str
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Object

    @property
    def component(self) -> str:
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def containers(self) -> list[Object]:
        """All of them, also those that run before the others."""
        return [*self.spec["containers"], *self.spec.get("initContainers", [])]


def autoscales(spec: Object) -> bool:
    """IsAutoscalingEnabled."""
    return bool(spec.get("enableInTreeAutoscaling"))


def check_name(name: str) -> str:
    """CheckName: the last 50 characters, and an "r" for a first one that is a digit or a sign."""
    name = name[-50:]
    return name if name[0].isalpha() else f"r{name[1:]}"


def head_account(cluster: str, spec: Object) -> str:
    """GetHeadGroupServiceAccountName: the head's own, else one of the cluster's name; clipped."""
    return check_name(spec["headGroupSpec"]["template"]["spec"].get("serviceAccountName") or cluster)


def operator_makes_account(cluster: str, spec: Object, existing: set[str]) -> bool:
    """reconcileAutoscalerServiceAccount: only where no account has that name yet, and the head names none itself."""
    named = spec["headGroupSpec"]["template"]["spec"].get("serviceAccountName")
    return autoscales(spec) and not named and head_account(cluster, spec) not in existing


def head_has_token(cluster: str, spec: Object, accounts: dict[str, Object]) -> bool:
    """The pod's word comes before the account's (Kubernetes' admission, shouldAutomount); an account that the operator
    makes (BuildServiceAccount) says nothing, which means yes."""
    said = spec["headGroupSpec"]["template"]["spec"].get("automountServiceAccountToken")
    if said is None:
        said = accounts.get(head_account(cluster, spec), {}).get("automountServiceAccountToken", True)
    return bool(said)


def token_secret(cluster: str, spec: Object) -> str:
    """SetContainerTokenAuthEnvVars: the Secret named, else one of the cluster's name that it makes."""
    return spec["authOptions"].get("secretName") or check_name(cluster)


def token_variables(cluster: str, spec: Object) -> list[Object]:
    """SetContainerTokenAuthEnvVars."""
    if spec.get("authOptions", {}).get("mode") != "token":
        return []
    reference = {"name": token_secret(cluster, spec), "key": "auth_token"}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": reference}},
    ]


def autoscaler_container(cluster: str, spec: Object) -> Object:
    """BuildAutoscalerContainer and mergeAutoscalerOverrides: the head's image, the options' rest."""
    options = spec.get("autoscalerOptions", {})
    small = {"cpu": "500m", "memory": "512Mi"}
    merged = {name: options[name] for name in ("securityContext", "volumeMounts", "envFrom") if name in options}
    return {
        "name": "autoscaler",
        "image": options.get("image") or spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"],
        "resources": options.get("resources", {"limits": small, "requests": small}),
        "env": [*token_variables(cluster, spec), *options.get("env", [])],
        **merged,
    }


def waiting_container(ray: Object) -> Object:
    """DefaultWorkerPodTemplate: `wait-gcs-ready` has the worker's image, variables and security."""
    small = {"cpu": "200m", "memory": "256Mi"}
    kept = {name: ray[name] for name in ("image", "securityContext", "env", "volumeMounts") if name in ray}
    return {"name": "wait-gcs-ready", "resources": {"limits": small, "requests": small}, **copy.deepcopy(kept)}


def labels_of(cluster: str, name: str, node_type: str, group: Object) -> dict[str, str]:
    """mergeLabels and labelPod: the group's labels before the template's, but three cannot be overridden."""
    made = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
    fixed = {"ray.io/cluster": cluster, "ray.io/node-type": node_type, "ray.io/group": name}
    ours = {**group["template"]["metadata"].get("labels", {}), **group.get("labels", {})}
    return {"ray.io/is-ray-node": "yes", **made, **ours, **fixed}


def ray_pods(where: str, cluster: str, spec: Object) -> list[Pod]:
    """DefaultHeadPodTemplate and DefaultWorkerPodTemplate: the head and one pod of every group."""
    head = copy.deepcopy(spec["headGroupSpec"]["template"])
    head["spec"]["containers"][0].setdefault("env", []).extend(token_variables(cluster, spec))
    if autoscales(spec):
        head["spec"]["serviceAccountName"] = head_account(cluster, spec)
        head["spec"]["containers"].append(autoscaler_container(cluster, spec))
        head["spec"]["restartPolicy"] = "Never"
    made = [_pod(f"{where} head", labels_of(cluster, HEAD_GROUP, "head", spec["headGroupSpec"]), head)]
    for group in spec["workerGroupSpecs"]:
        template = copy.deepcopy(group["template"])
        ray = template["spec"]["containers"][0]
        ray.setdefault("env", []).extend(token_variables(cluster, spec))
        template["spec"].setdefault("initContainers", []).append(waiting_container(ray))
        if autoscales(spec):
            template["spec"]["restartPolicy"] = "Never"
        labels = labels_of(cluster, group["groupName"], "worker", group)
        made.append(_pod(f"{where} {group['groupName']}", labels, template))
    return made


def cluster_of_job(job: str) -> str:
    """GenerateRayClusterName: five characters behind the job's name, here always the same ones."""
    return f"{job}-x7k2p"


def head_service(cluster: str) -> str:
    """GenerateHeadServiceName."""
    return f"{cluster}-head-svc"


def submitter_pod(where: str, job: Object) -> Pod:
    """getSubmitterTemplate and configureSubmitterContainer: ours, with the job's address and the cluster's token."""
    template = copy.deepcopy(job["spec"]["submitterPodTemplate"])
    variables = token_variables(cluster_of_job(job["metadata"]["name"]), job["spec"]["rayClusterSpec"])
    template["spec"]["containers"][0].setdefault("env", []).extend(variables)
    return _pod(f"{where} submitter", template["metadata"]["labels"], template)


def _pod(where: str, labels: dict[str, str], template: Object) -> Pod:
    return Pod(where, labels, template["metadata"].get("annotations", {}), template["spec"])


def redis_cleanup_labels(cluster: str, spec: Object) -> dict[str, str]:
    """buildRedisCleanupJob: the head's pod with another node type."""
    return {**ray_pods("", cluster, spec)[0].labels, "ray.io/node-type": "redis-cleanup"}


def node_resources(group: Object) -> dict[str, float]:
    """updateRayStartParamsResources and generateRayStartCommand: what a node tells Ray it has.

    The group's `resources` come first, then rayStartParams, then the container's limits; CPUs are rounded up.
    """
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    named = {name: float(amount) for name, amount in group.get("resources", {}).items()}
    parameters = group.get("rayStartParams", {})
    cpus = named.pop("CPU", parameters.get("num-cpus", -(-millis(limits["cpu"]) // 1000)))
    limited = sum(float(amount) for name, amount in limits.items() if name.endswith("gpu"))
    gpus = named.pop("GPU", float(parameters.get("num-gpus", limited)))
    return {"CPU": float(cpus), **({"GPU": gpus} if gpus else {}), **named}


def millis(quantity: str | int) -> int:
    """A quantity of CPU in thousandths. Example: "1500m" -> 1500, "2" -> 2000"""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def deployment_status(job_status: str, submitter_finished: bool) -> str:
    """Reconcile, case Running: over only when both the job and its submitter are."""
    if job_status not in TERMINAL or not submitter_finished:
        return "Running"
    return "Failed" if job_status == "FAILED" else "Complete"


def is_retried(spec: Object, status: str, failed: int, reason: str = "AppFailed") -> bool:
    """checkBackoffLimitAndUpdateStatusIfNeeded: whatever failed, but for a deadline.

    `failed` counts this failure too.
    """
    return status == "Failed" and failed < spec.get("backoffLimit", 0) + 1 and reason != "DeadlineExceeded"


def is_suspended_by_apply(spec: Object, status: str) -> bool:
    """updateStatusToSuspendingIfNeeded: a running job that says so is torn down."""
    return bool(spec.get("suspend")) and status in ("Running", "Initializing")


def health_check(spec: Object) -> str:
    """supportsUnifiedHealthCheck: from Ray 2.53 over HTTP, before with bash and wget in the image."""
    major, minor = (int(part) for part in spec["rayVersion"].split(".")[:2])
    return "http" if (major, minor) >= (2, 53) else "wget"
