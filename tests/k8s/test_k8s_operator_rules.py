"""The operator's own rules: ours pass them, and each one bites when it is broken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Object = dict[str, Any]


def test_the_operator_would_take_ours(objects: list[Object], operator_rules: ModuleType) -> None:
    for each in objects:
        if each["kind"].startswith("Ray"):
            assert operator_rules.violations(each) == []


def head(spec: Object) -> Object:
    return spec["headGroupSpec"]


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
    "enableK8sTokenAuth": lambda s: s["authOptions"].update(enableK8sTokenAuth=True),
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
    "exactly one of": lambda s: s.update(clusterSelector={"ray.io/cluster": "rayctsl"}),
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
def test_a_broken_rule_is_named(
    everything: list[Object], operator_rules: ModuleType, manifests: ModuleType, kind: str, part: str
) -> None:
    name = "rayctsl" if kind == "RayCluster" else "train"
    each = copy.deepcopy(manifests.only(everything, kind, name))
    (CLUSTER_BREAKS if kind == "RayCluster" else JOB_BREAKS)[part](each["spec"])
    assert any(part in sentence for sentence in operator_rules.violations(each))


@pytest.mark.parametrize(("part", "name"), NAME_BREAKS.items())
def test_a_bad_name_is_seen(
    everything: list[Object], operator_rules: ModuleType, manifests: ModuleType, part: str, name: str
) -> None:
    each = copy.deepcopy(manifests.only(everything, "RayCluster"))
    each["metadata"]["name"] = name
    assert any(part in sentence for sentence in operator_rules.violations(each))


def test_rays_own_autoscaler_reads_the_groups(everything: list[Object], manifests: ModuleType) -> None:
    """Ray's code that turns a RayCluster into node types: GPUs from nothing, coordinators only where nodes stay."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster = copy.deepcopy(manifests.only(everything, "RayCluster"))
    types = _derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    resources = {name: kind["resources"] for name, kind in types.items()}
    assert resources["headgroup"]["CPU"] == 0
    assert resources["cpu"] == {"CPU": 8, "coordinator": 8, **_memory(resources["cpu"])}
    for name in ("gpu", "gpu-spot"):
        assert resources[name]["GPU"] == 1
        assert "coordinator" not in resources[name]
        assert (types[name]["min_workers"], types[name]["max_workers"]) == (0, 8)
    assert types["gpu-spot"]["labels"] == {"ray.io/market-type": "spot"}
    assert types["gpu-spot"]["priority"] > types["gpu"].get("priority", 0)


def _memory(resources: Object) -> Object:
    return {name: value for name, value in resources.items() if name == "memory"}
