"""What KubeRay v1.7.0 makes of a RayCluster or RayJob, and Kubernetes of a token, as small pure functions.

Each names the place in the operator's source that it replays: file and function below
https://github.com/ray-project/kuberay/tree/v1.7.0/ray-operator/controllers/ray. The line is given where it was read at
that tag; for the others the tag's own text was not at hand, and functions are found by their names.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
HEAD_GROUP = "headgroup"  # utils/constant.go: RayNodeHeadGroupLabelValue
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
    """utils/util.go, IsAutoscalingEnabled."""
    return bool(spec.get("enableInTreeAutoscaling"))


def head_account(cluster: str, spec: Object) -> str:
    """utils/util.go:578, GetHeadGroupServiceAccountName: the head's own, else one of the cluster's name."""
    return spec["headGroupSpec"]["template"]["spec"].get("serviceAccountName") or cluster


def operator_makes_account(cluster: str, spec: Object, existing: set[str]) -> bool:
    """raycluster_controller.go:2226, reconcileAutoscalerServiceAccount: only where no account has that name yet."""
    return autoscales(spec) and head_account(cluster, spec) not in existing


def head_has_token(cluster: str, spec: Object, accounts: dict[str, Object]) -> bool:
    """The pod's word comes before the account's (Kubernetes, ServiceAccount admission); an account that the operator
    makes (common/rbac.go, BuildServiceAccount) says nothing, which means yes."""
    said = spec["headGroupSpec"]["template"]["spec"].get("automountServiceAccountToken")
    if said is None:
        said = accounts.get(head_account(cluster, spec), {}).get("automountServiceAccountToken", True)
    return bool(said)


def token_secret(cluster: str, spec: Object) -> str:
    """common/pod.go, SetContainerTokenAuthEnvVars: the Secret named, else one of the cluster's name that it makes."""
    return spec["authOptions"].get("secretName") or cluster


def token_variables(cluster: str, spec: Object) -> list[Object]:
    """common/pod.go, SetContainerTokenAuthEnvVars."""
    if spec.get("authOptions", {}).get("mode") != "token":
        return []
    reference = {"name": token_secret(cluster, spec), "key": "auth_token"}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": reference}},
    ]


def autoscaler_container(cluster: str, spec: Object) -> Object:
    """common/pod.go, BuildAutoscalerContainer and mergeAutoscalerOverrides: the head's image, the options' rest."""
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
    """common/pod.go, DefaultWorkerPodTemplate: `wait-gcs-ready` has the worker's image, variables and security."""
    small = {"cpu": "200m", "memory": "256Mi"}
    kept = {name: ray[name] for name in ("image", "securityContext", "env", "volumeMounts") if name in ray}
    return {"name": "wait-gcs-ready", "resources": {"limits": small, "requests": small}, **copy.deepcopy(kept)}


def labels_of(cluster: str, group: str, node_type: str, template: Object) -> dict[str, str]:
    """common/pod.go, labelPod: three of its labels cannot be overridden."""
    own = {"ray.io/cluster": cluster, "ray.io/node-type": node_type, "ray.io/group": group}
    return {"ray.io/is-ray-node": "yes", **template["metadata"].get("labels", {}), **own}


def ray_pods(where: str, cluster: str, spec: Object) -> list[Pod]:
    """The head and one pod of every group: common/pod.go, DefaultHeadPodTemplate and DefaultWorkerPodTemplate."""
    head = copy.deepcopy(spec["headGroupSpec"]["template"])
    head["spec"]["containers"][0].setdefault("env", []).extend(token_variables(cluster, spec))
    if autoscales(spec):
        head["spec"]["serviceAccountName"] = head_account(cluster, spec)
        head["spec"]["containers"].append(autoscaler_container(cluster, spec))
    made = [_pod(f"{where} head", labels_of(cluster, HEAD_GROUP, "head", head), head)]
    for group in spec["workerGroupSpecs"]:
        template = copy.deepcopy(group["template"])
        ray = template["spec"]["containers"][0]
        ray.setdefault("env", []).extend(token_variables(cluster, spec))
        template["spec"].setdefault("initContainers", []).append(waiting_container(ray))
        labels = {**labels_of(cluster, group["groupName"], "worker", template), **group.get("labels", {})}
        made.append(_pod(f"{where} {group['groupName']}", labels, template))
    return made


def submitter_pod(where: str, job: Object) -> Pod:
    """rayjob_controller.go, getSubmitterTemplate: ours, with the job's address and the cluster's token."""
    template = copy.deepcopy(job["spec"]["submitterPodTemplate"])
    variables = token_variables(f"{job['metadata']['name']}-x7k2p", job["spec"]["rayClusterSpec"])
    template["spec"]["containers"][0].setdefault("env", []).extend(variables)
    return _pod(f"{where} submitter", template["metadata"]["labels"], template)


def _pod(where: str, labels: dict[str, str], template: Object) -> Pod:
    return Pod(where, labels, template["metadata"].get("annotations", {}), template["spec"])


def redis_cleanup_labels(cluster: str, spec: Object) -> dict[str, str]:
    """raycluster_controller.go, buildRedisCleanupJob: the head's pod with another node type."""
    return {**ray_pods("", cluster, spec)[0].labels, "ray.io/node-type": "redis-cleanup"}


def node_resources(group: Object) -> dict[str, float]:
    """common/pod.go, updateRayStartParamsResources and generateRayStartCommand: what a node tells Ray it has.

    The group's `resources` come first, then rayStartParams, then the container's limits; CPUs are rounded up.
    """
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    named = {name: float(amount) for name, amount in group.get("resources", {}).items()}
    parameters = group.get("rayStartParams", {})
    cpus = named.pop("CPU", parameters.get("num-cpus", -(-millis(limits["cpu"]) // 1000)))
    gpus = sum(float(amount) for name, amount in limits.items() if name.endswith("/gpu"))  # utils.IsGPUResourceKey
    return {"CPU": float(cpus), **({"GPU": gpus} if gpus else {}), **named}


def millis(quantity: str | int) -> int:
    """A quantity of CPU in thousandths. Example: "1500m" -> 1500, "2" -> 2000"""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def deployment_status(job_status: str, submitter_finished: bool) -> str:
    """rayjob_controller.go, Reconcile (case Running): over only when both the job and its submitter are."""
    if job_status not in TERMINAL or not submitter_finished:
        return "Running"
    return "Failed" if job_status == "FAILED" else "Complete"


def is_retried(spec: Object, status: str, failed: int, reason: str = "AppFailed") -> bool:
    """rayjob_controller.go:542, checkBackoffLimitAndUpdateStatusIfNeeded: whatever failed, but for a deadline.

    `failed` counts this failure too.
    """
    return status == "Failed" and failed < spec.get("backoffLimit", 0) + 1 and reason != "DeadlineExceeded"


def is_suspended_by_apply(spec: Object, status: str) -> bool:
    """rayjob_controller.go:1043, updateStatusToSuspendingIfNeeded: a running job that says so is torn down."""
    return bool(spec.get("suspend")) and status in ("Running", "Initializing")


def health_check(spec: Object) -> str:
    """common/pod.go, supportsUnifiedHealthCheck: from Ray 2.53 over HTTP, before with bash and wget in the image."""
    major, minor = (int(part) for part in spec["rayVersion"].split(".")[:2])
    return "http" if (major, minor) >= (2, 53) else "wget"
