"""What the KubeRay operator refuses although its schemas allow it, as far as it can touch these manifests.

The lines of its source are in `sources.py`, under each sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
MAX_CLUSTER_NAME, MAX_JOB_NAME = 63 - 10, 63 - 16  # room for what the operator appends


def violations(each: Object) -> list[str]:
    """Every rule that a RayCluster or RayJob breaks, as one sentence each."""
    spec = each["spec"]
    found = list(_name(each))
    if each["kind"] == "RayJob":
        found += _job(spec)
        spec = spec.get("rayClusterSpec", {})
        found += _cluster_of_job(spec)
    if spec:
        found += _cluster(spec, each["metadata"].get("annotations", {}))
    return found


def _cluster_of_job(spec: Object) -> Iterator[str]:
    if "upgradeStrategy" in spec:
        yield "upgradeStrategy in a RayJob's cluster"
    if spec.get("authOptions", {}).get("enableK8sTokenAuth"):
        yield "enableK8sTokenAuth in a RayJob"


def _name(each: Object) -> Iterator[str]:
    name = each["metadata"]["name"]
    if len(name) > (MAX_JOB_NAME if each["kind"] == "RayJob" else MAX_CLUSTER_NAME):
        yield "the name is too long"
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield "the name is no DNS-1035 label"


def _cluster(spec: Object, annotations: Object) -> Iterator[str]:
    head, groups = spec["headGroupSpec"], spec.get("workerGroupSpecs", [])
    scaled = spec.get("enableInTreeAutoscaling", False)
    options = spec.get("autoscalerOptions", {})
    for group in [head, *groups]:
        yield from _group(group, scaled and options.get("version") == "v2")
    for group in groups:
        if group.get("minReplicas", 0) > group.get("maxReplicas", 2**31 - 1) or group.get("minReplicas", 0) < 0:
            yield "minReplicas is negative or above maxReplicas"
        if not scaled and not {"minReplicas", "maxReplicas"} <= set(group):
            yield "without autoscaling a group needs minReplicas and maxReplicas"
        if scaled and group.get("suspend"):
            yield "a suspended group with autoscaling"
    environment = {entry["name"] for entry in _container(head).get("env", [])}
    if options.get("version") and "RAY_enable_autoscaler_v2" in environment:
        yield "the autoscaler's version is said twice"
    if options.get("idleTimeoutSeconds", 0) < 0:
        yield "idleTimeoutSeconds is negative"
    yield from _fault_tolerance(spec, annotations, environment)
    if spec.get("authOptions", {}).get("mode") == "token":
        if _version(spec.get("rayVersion", "")) < (2, 52):
            yield "token authentication needs rayVersion 2.52 or later"
        if spec["authOptions"].get("enableK8sTokenAuth") and spec["authOptions"].get("secretName"):
            yield "enableK8sTokenAuth beside secretName"
    for gated in ("networkPolicy", "tlsOptions", "historyServerOptions"):
        if gated in spec:
            yield f"{gated} needs a feature gate that is off by default"


def _group(group: Object, scaled_v2: bool) -> Iterator[str]:
    parameters = group.get("rayStartParams", {})
    if group.get("resources") and {"num-cpus", "num-gpus", "memory", "resources"} & set(parameters):
        yield "resources both in rayStartParams and in resources"
    if "labels" in parameters:
        yield "labels belong to the group, not to rayStartParams"
    if not group["template"]["spec"].get("containers"):
        yield "a group without a container"
    if scaled_v2 and group["template"]["spec"].get("restartPolicy", "Never") != "Never":
        yield "autoscaler v2 wants restartPolicy Never"
    if not scaled_v2 and {"idleTimeoutSeconds", "priority"} & set(group):
        yield "idleTimeoutSeconds and priority of a group need autoscaler v2"


def _fault_tolerance(spec: Object, annotations: Object, environment: set[str]) -> Iterator[str]:
    parameters = spec["headGroupSpec"].get("rayStartParams", {})
    options = spec.get("gcsFaultToleranceOptions")
    if "RAY_REDIS_ADDRESS" in environment:
        yield "the Redis address belongs to gcsFaultToleranceOptions"
    if "redis-username" in parameters or "REDIS_USERNAME" in environment:
        yield "the Redis user belongs to gcsFaultToleranceOptions"
    if options is None:
        return
    if "redis-password" in parameters or "REDIS_PASSWORD" in environment:
        yield "the Redis password belongs to gcsFaultToleranceOptions"
    if {"ray.io/ft-enabled", "ray.io/external-storage-namespace"} & set(annotations):
        yield "old annotations beside gcsFaultToleranceOptions"
    if options.get("backend", "redis") == "redis" and "storage" in options:
        yield "storage is for the backend rocksdb"


def _job(spec: Object) -> Iterator[str]:
    selected, limit = spec.get("clusterSelector"), spec.get("backoffLimit", 0)
    stops, ttl = spec.get("shutdownAfterJobFinishes", False), spec.get("ttlSecondsAfterFinished", 0)
    if not selected and not spec.get("rayClusterSpec"):
        yield "neither rayClusterSpec nor clusterSelector"
    if limit < 0 or (selected and limit > 0):
        yield "backoffLimit is negative, or beside clusterSelector"
    if spec.get("suspend") and (selected or not stops):
        yield "suspend needs a cluster of its own and shutdownAfterJobFinishes"
    if ttl < 0 or (ttl > 0 and not stops):
        yield "ttlSecondsAfterFinished is negative, or without shutdownAfterJobFinishes"
    if stops and spec.get("deletionStrategy", {}).get("deletionRules"):
        yield "shutdownAfterJobFinishes beside deletionRules"
    if spec.get("submissionMode") == "SidecarMode" and {"submitterPodTemplate", "submitterConfig"} & set(spec):
        yield "SidecarMode has no submitter pod"
    for name in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if spec.get(name, 1) <= 0:
            yield f"{name} must be positive"


def _container(group: Object) -> Object:
    return next(iter(group["template"]["spec"].get("containers", [])), {})


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
