"""Every rendered object fits its schema, and the check is sharp enough to see a typo."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from k8s_checks.manifests import Object, of_kind
from k8s_checks.schemas import check


@pytest.fixture(scope="module")
def valid() -> set[str]:
    """Objects that have been found valid: overlays share many."""
    return set()


def test_everything_is_valid(objects: list[Object], valid: set[str]) -> None:
    assert len(objects) >= 24
    for each in objects:
        if (text := json.dumps(each, sort_keys=True)) not in valid:
            check(each)
            valid.add(text)
    assert {each["apiVersion"] for each in of_kind(objects, "RayCluster", "RayJob")} == {"ray.io/v1"}


def ray_container(each: Object) -> Object:
    found: Object = each["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return found


def pod_container(each: Object) -> Object:
    found: Object = each["spec"]["template"]["spec"]["containers"][0]
    return found


TYPOS: list[tuple[str, str, Callable[[Object], Any]]] = [
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
    ("Job", "backofLimit", lambda o: o["spec"].update(backofLimit=1)),
    ("NetworkPolicy", "podselector", lambda o: o["spec"].update(podselector={})),
    ("HTTPRoute", "hostname", lambda o: o["spec"].update(hostname="x")),
    ("PodMonitor", "podMetricEndpoints", lambda o: o["spec"].update(podMetricEndpoints=[])),
    ("ServiceMonitor", "interval", lambda o: o["spec"]["endpoints"][0].update(interval=30)),
    ("PrometheusRule", "exp", lambda o: o["spec"]["groups"][0]["rules"][0].update(exp="up")),
]


@pytest.mark.parametrize(("kind", "field", "spoil"), TYPOS, ids=[f"{kind}-{field}" for kind, field, _ in TYPOS])
def test_a_typo_is_caught(everything: list[Object], kind: str, field: str, spoil: Callable[[Object], Any]) -> None:
    each = copy.deepcopy(of_kind(everything, kind)[0])
    check(each)
    spoil(each)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(each)
