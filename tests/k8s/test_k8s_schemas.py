"""Every rendered object fits its schema, and the check is sharp enough to see a typo."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

KUBERNETES = "1.34"
RAY_KINDS = ("RayCluster", "RayJob")
NO_SCHEMA = ("ServiceMonitor", "PodMonitor")  # the Prometheus operator's


def check_core(each: dict[str, Any]) -> None:
    kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_core_kinds_are_valid(objects: list[dict[str, Any]]) -> None:
    core = [each for each in objects if each["kind"] not in RAY_KINDS + NO_SCHEMA]
    assert len(core) >= 12
    for each in core:
        check_core(each)


@pytest.fixture(scope="module")
def check_ray(manifests: ModuleType) -> Callable[[dict[str, Any]], None]:
    if not manifests.CRDS.is_dir():
        pytest.skip("KubeRay's CRD files are not in ../shared/reference/kuberay-crds: its kinds are not validated")
    validators = {kind: jsonschema.Draft202012Validator(manifests.kuberay_schema(kind)) for kind in RAY_KINDS}
    return lambda each: validators[each["kind"]].validate(each)


def test_ray_kinds_are_valid(objects: list[dict[str, Any]], check_ray: Callable[[dict[str, Any]], None]) -> None:
    ray = [each for each in objects if each["kind"] in RAY_KINDS]
    assert [each["kind"] for each in ray] == ["RayCluster", "RayJob", "RayJob"]
    for each in ray:
        assert each["apiVersion"] == "ray.io/v1"
        check_ray(each)


TYPOS: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("RayCluster", "maxReplica", lambda o: o["spec"]["workerGroupSpecs"][0].update(maxReplica=3)),
    ("RayCluster", "mode", lambda o: o["spec"]["authOptions"].update(mode="tokn")),
    ("RayCluster", "secretname", lambda o: o["spec"]["authOptions"].update(secretname="x")),
    ("RayCluster", "containerPort", lambda o: ray_container(o)["ports"][0].update(containerPort="x")),
    ("RayCluster", "envfrom", lambda o: ray_container(o).update(envfrom=[])),
    ("RayJob", "entryPoint", lambda o: o["spec"].update(entryPoint="python")),
    ("RayJob", "backoffLimit", lambda o: o["spec"].update(backoffLimit="many")),
    ("RayJob", "rayVersoin", lambda o: o["spec"]["rayClusterSpec"].update(rayVersoin="2.60.0")),
    ("Deployment", "replica", lambda o: o["spec"].update(replica=2)),
    ("Deployment", "readinesProbe", lambda o: pod_container(o).update(readinesProbe={})),
    ("NetworkPolicy", "podselector", lambda o: o["spec"].update(podselector={})),
    ("Ingress", "pathtype", lambda o: o["spec"]["rules"][0]["http"]["paths"][0].update(pathtype="Prefix")),
]


def ray_container(each: dict[str, Any]) -> dict[str, Any]:
    return each["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


def pod_container(each: dict[str, Any]) -> dict[str, Any]:
    return each["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(("kind", "field", "spoil"), TYPOS, ids=[f"{kind}-{field}" for kind, field, _ in TYPOS])
def test_a_typo_is_caught(
    everything: list[dict[str, Any]],
    request: pytest.FixtureRequest,
    kind: str,
    field: str,
    spoil: Callable[[dict[str, Any]], Any],
) -> None:
    check = request.getfixturevalue("check_ray") if kind in RAY_KINDS else check_core
    each = copy.deepcopy(next(each for each in everything if each["kind"] == kind))
    spoil(each)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(each)
