"""The operator's own rules: ours pass them, and each one bites when it is broken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from k8s_checks.manifests import Object, of_kind, only
from k8s_checks.operator_rules import violations


def test_the_operator_would_take_ours(objects: list[Object]) -> None:
    for each in of_kind(objects, "RayCluster", "RayJob"):
        assert violations(each) == []


def head(spec: Object) -> Object:
    found: Object = spec["headGroupSpec"]
    return found


def head_env(spec: Object, name: str) -> None:
    head(spec)["template"]["spec"]["containers"][0]["env"].append({"name": name, "value": "true"})


CLUSTER_BREAKS: dict[str, Callable[[Object], Any]] = {
    "resources both": lambda s: s["workerGroupSpecs"][0]["rayStartParams"].update({"num-cpus": "1"}),
    "labels belong to the group": lambda s: head(s)["rayStartParams"].update(labels="a=b"),
    "minReplicas is negative or above": lambda s: s["workerGroupSpecs"][0].update(minReplicas=9),
    "without a container": lambda s: s["workerGroupSpecs"][0]["template"]["spec"].update(containers=[]),
    "restartPolicy Never": lambda s: head(s)["template"]["spec"].update(restartPolicy="Always"),
    "said twice": lambda s: head_env(s, "RAY_enable_autoscaler_v2"),
    "need autoscaler v2": lambda s: s["autoscalerOptions"].update(version="v1"),
    "suspended group": lambda s: s["workerGroupSpecs"][0].update(suspend=True),
    "rayVersion 2.52": lambda s: s.update(rayVersion="2.51.0"),
    "enableK8sTokenAuth beside secretName": lambda s: s["authOptions"].update(enableK8sTokenAuth=True),
    "Redis password": lambda s: head(s)["rayStartParams"].update({"redis-password": "x"}),
    "Redis address": lambda s: head_env(s, "RAY_REDIS_ADDRESS"),
    "Redis user": lambda s: head_env(s, "REDIS_USERNAME"),
    "backend rocksdb": lambda s: s["gcsFaultToleranceOptions"].update(storage={}),
    "feature gate": lambda s: s.update(networkPolicy={}),
    "needs minReplicas and maxReplicas": lambda s: (
        s.update(enableInTreeAutoscaling=False),
        s["workerGroupSpecs"][0].pop("maxReplicas"),
    ),
}

JOB_BREAKS: dict[str, Callable[[Object], Any]] = {
    "neither rayClusterSpec": lambda s: s.pop("rayClusterSpec"),
    "enableK8sTokenAuth in a RayJob": lambda s: s["rayClusterSpec"]["authOptions"].update(enableK8sTokenAuth=True),
    "beside clusterSelector": lambda s: (s.pop("rayClusterSpec"), s.update(clusterSelector={"ray.io/cluster": "x"})),
    "suspend needs": lambda s: s.update(suspend=True, shutdownAfterJobFinishes=False),
    "ttlSecondsAfterFinished": lambda s: s.update(shutdownAfterJobFinishes=False),
    "deletionRules": lambda s: s.update(deletionStrategy={"deletionRules": [{"policy": "DeleteCluster"}]}),
    "SidecarMode": lambda s: s.update(submissionMode="SidecarMode"),
    "activeDeadlineSeconds": lambda s: s.update(activeDeadlineSeconds=0),
    "upgradeStrategy": lambda s: s["rayClusterSpec"].update(upgradeStrategy={"type": "Recreate"}),
}
NAME_BREAKS = {"too long": "r" * 60, "DNS-1035": "9rays"}


@pytest.mark.parametrize(
    ("kind", "part"), [*(("RayCluster", part) for part in CLUSTER_BREAKS), *(("RayJob", part) for part in JOB_BREAKS)]
)
def test_a_broken_rule_is_named(everything: list[Object], kind: str, part: str) -> None:
    name = "rayctsl" if kind == "RayCluster" else "train"
    each = copy.deepcopy(only(everything, kind, name))
    (CLUSTER_BREAKS if kind == "RayCluster" else JOB_BREAKS)[part](each["spec"])
    assert any(part in sentence for sentence in violations(each))


@pytest.mark.parametrize(("part", "name"), NAME_BREAKS.items())
def test_a_bad_name_is_seen(everything: list[Object], part: str, name: str) -> None:
    each = copy.deepcopy(only(everything, "RayCluster"))
    each["metadata"]["name"] = name
    assert any(part in sentence for sentence in violations(each))
