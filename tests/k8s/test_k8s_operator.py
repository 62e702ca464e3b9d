"""The operator's reconciliation of every RayCluster and RayJob, replayed: names, accounts, resources, attempts."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
from k8s_checks import operator
from k8s_checks.manifests import RUNS, Object, names_of, of_kind, only, pod, pods_of, render
from k8s_checks.rules_names import clusters_of

ROOT = Path(__file__).parents[2]


def test_heads_get_an_account_that_the_operator_makes(objects: list[Object]) -> None:
    ours = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    for name, spec in clusters_of(objects):
        assert operator.head_account(name, spec) == name
        assert operator.operator_makes_account(name, spec, set(ours))
        assert operator.head_has_token(name, spec, ours)


def test_an_account_of_the_clusters_name_leaves_the_autoscaler_without_a_token(everything: list[Object]) -> None:
    """What happens when the rule is broken: the operator takes the account that is there."""
    account = copy.deepcopy(only(everything, "ServiceAccount"))
    spec = only(everything, "RayCluster")["spec"]
    assert account["automountServiceAccountToken"] is False
    assert not operator.operator_makes_account("rayctsl", spec, {"rayctsl"})
    assert not operator.head_has_token("rayctsl", spec, {"rayctsl": account})


def test_autoscalers_run_beside_every_head_with_the_heads_image_and_rights(objects: list[Object]) -> None:
    heads = [each for each in pods_of(objects) if each.component == "ray-head"]
    assert len(heads) == len(list(clusters_of(objects)))
    for head in heads:
        ray, autoscaler = head.spec["containers"]
        assert autoscaler["name"] == "autoscaler"
        assert autoscaler["image"] == ray["image"]
        assert autoscaler["securityContext"] == ray["securityContext"]
        tokens = [e["valueFrom"]["secretKeyRef"] for e in autoscaler["env"] if e["name"] == "RAY_AUTH_TOKEN"]
        assert len(tokens) == 1


def test_every_cluster_has_its_own_token(objects: list[Object]) -> None:
    secrets = {name: operator.token_secret(name, spec) for name, spec in clusters_of(objects)}
    assert secrets.pop("rayctsl") == "rayctsl-ray-token"  # which the service has too
    assert all(name == secret for name, secret in secrets.items())  # made by the operator
    for job in of_kind(objects, "RayJob"):
        name = job["metadata"]["name"]
        submitter = pod(objects, f"RayJob/{name} submitter").spec["containers"][0]
        (token,) = [e["valueFrom"]["secretKeyRef"] for e in submitter["env"] if e["name"] == "RAY_AUTH_TOKEN"]
        assert token["name"] in secrets


def test_groups_have_the_resources_that_runs_ask_for(everything: list[Object]) -> None:
    for _, spec in clusters_of(everything):
        told = {group["groupName"]: operator.node_resources(group) for group in spec["workerGroupSpecs"]}
        assert operator.node_resources(spec["headGroupSpec"]) == {"CPU": 0.0}
        assert told == {
            "cpu": {"CPU": 3.0, "coordinator": 3.0},
            "gpu": {"CPU": 3.0, "GPU": 1.0},
            "gpu-spot": {"CPU": 3.0, "GPU": 1.0},
        }


def test_rays_own_autoscaler_reads_the_groups_in_the_same_way(everything: list[Object]) -> None:
    """Ray's code that turns a RayCluster into node types: GPUs from nothing, coordinators only where nodes stay."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster = copy.deepcopy(only(everything, "RayCluster"))
    types = _derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    for group in only(everything, "RayCluster")["spec"]["workerGroupSpecs"]:
        found = types[group["groupName"]]
        resources = {name: float(value) for name, value in found["resources"].items() if name != "memory"}
        assert resources == operator.node_resources(group)
        assert (found["min_workers"], found["max_workers"]) == (group["minReplicas"], group["maxReplicas"])
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["gpu-spot"]["labels"] == {"ray.io/market-type": "spot"}
    assert types["gpu-spot"]["priority"] > types["gpu"].get("priority", 0)


def test_runs_clusters_are_copies_of_the_services_but_for_token_and_redis(objects: list[Object]) -> None:
    platform = copy.deepcopy(only(objects, "RayCluster")["spec"])
    platform["authOptions"].pop("secretName")
    platform.pop("gcsFaultToleranceOptions", None)
    for job in of_kind(objects, "RayJob"):
        assert job["spec"]["rayClusterSpec"] == platform


def test_an_overlay_never_holds_a_run_and_a_run_nothing_else(rendered: None) -> None:
    """So that applying the platform again cannot touch what runs."""
    for overlay, runs in RUNS.items():
        assert not of_kind(render(f"overlays/{overlay}"), "RayJob", "Job")
        for run in runs:
            (made,) = render(run)
            assert made["kind"] in ("RayJob", "Job")


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_a_lost_head_is_tried_again_and_bad_input_is_not(everything: list[Object], name: str) -> None:
    spec = only(everything, "RayJob", name)["spec"]
    lost = operator.deployment_status("FAILED", submitter_finished=True)
    assert [operator.is_retried(spec, lost, failed) for failed in range(1, 6)] == [True, True, True, False, False]
    assert not operator.is_retried(spec, lost, 1, "DeadlineExceeded")
    stopped = operator.deployment_status("STOPPED", submitter_finished=True)  # what attempt.sh makes of exit code 2
    assert stopped == "Complete"
    assert not operator.is_retried(spec, stopped, 1)
    assert operator.deployment_status("FAILED", submitter_finished=False) == "Running"


def test_applying_a_run_again_would_not_suspend_it(everything: list[Object]) -> None:
    for job in of_kind(everything, "RayJob"):
        assert not operator.is_suspended_by_apply(job["spec"], "Running")
    assert operator.is_suspended_by_apply({"suspend": True}, "Running")
    assert not operator.is_suspended_by_apply({"suspend": True}, "Complete")


@pytest.mark.parametrize("code", [0, 1, 2, 137])
def test_the_wrapper_stops_the_job_for_bad_input_only(tmp_path: Path, code: int) -> None:
    """attempt.sh with a `ray` that writes down how it was called."""
    called = tmp_path / "called"
    (tmp_path / "ray").write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    (tmp_path / "ray").chmod(0o755)
    settings = {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"metadata": {"job_submission_id": "train-abc"}}'}
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", str(ROOT / "k8s/base/scripts/attempt.sh"), "bash", "-c", 'echo "$1"; exit $0', str(code), "a b"],
        env={**settings, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout.startswith("a b\n")
    assert (called.read_text() if called.exists() else "") == ("job stop train-abc\n" if code == 2 else "")


def test_names_leave_room_for_what_the_operator_appends(objects: list[Object]) -> None:
    for name in names_of(objects, "RayJob"):
        cluster = operator.cluster_of_job(name)
        assert len(operator.head_service(cluster)) <= 63
        assert operator.check_name(cluster) == cluster  # else the head's account had another name than the cluster


def test_names_are_clipped_from_the_front_and_begin_with_a_letter() -> None:
    assert operator.check_name("a" * 10 + "b" * 50) == "b" * 50
    assert operator.check_name("9rays") == "rrays"
    assert operator.check_name("-rays") == "rrays"


def test_the_operator_makes_no_account_that_the_head_asks_for(everything: list[Object]) -> None:
    spec = copy.deepcopy(only(everything, "RayCluster")["spec"])
    spec["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = "ours"
    assert operator.head_account("rayctsl", spec) == "ours"
    assert not operator.operator_makes_account("rayctsl", spec, set())
