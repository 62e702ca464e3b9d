"""Alerts and dashboard ask for metrics that exist, so that a renamed metric is a failing test."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from k8s_checks.manifests import Object, only, values_of
from k8s_checks.program import metrics, ray_names

ROOT = Path(__file__).parents[2]
FOREIGN = {"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}  # kubelet's


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("k8s_dashboard", ROOT / "k8s" / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked_for(expression: str) -> set[str]:
    """The metrics in an expression. Example: "sum(rate(a_total{code='429'}[5m]))" -> {"a_total"}"""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without)\s*\([^)]*\)", " ", expression)
    return set(re.findall(r"\b(?:ray|rayctsl|kubelet|kube)_\w+", bare))


def is_known(name: str) -> bool:
    return name in metrics() or name in FOREIGN or ray_names(name)


def test_alerts_ask_for_metrics_that_exist(everything: list[Object]) -> None:
    rules = only(everything, "PrometheusRule")
    expressions = list(values_of(rules, "expr"))
    names = {name for expression in expressions for name in asked_for(expression)}
    assert all(asked_for(expression) for expression in expressions)
    assert [name for name in sorted(names) if not is_known(name)] == []
    assert {"RayctslRunStalled", "RayctslFaultsWithoutProgress", "RayctslQueueFull", "RayctslDispatcherAbsent"} <= set(
        values_of(rules, "alert")
    )
    for rule in [rule for group in rules["spec"]["groups"] for rule in group["rules"]]:
        assert {"summary", "action"} <= set(rule["annotations"])


def test_the_dashboard_is_the_generators_and_asks_for_metrics_that_exist(
    everything: list[Object], generator: ModuleType
) -> None:
    text = only(everything, "ConfigMap", "rayctsl-dashboard")["data"]["rayctsl.json"]
    assert text == generator.dashboard(), "run python k8s/dashboard.py"
    names = {name for expression in values_of(json.loads(text), "expr") for name in asked_for(expression)}
    assert [name for name in sorted(names) if not is_known(name)] == []
    assert len(names & metrics()) >= 12


def test_panels_do_not_overlap(generator: ModuleType) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(generator.dashboard())["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not own & cells
        cells |= own
    assert max(x for x, _ in cells) < 24


def test_a_renamed_metric_would_be_seen() -> None:
    assert is_known("rayctsl_finetune_queue_depth")
    assert is_known("ray_rayctsl_task_loss")
    assert not is_known("rayctsl_finetune_queue_length")
    assert not is_known("ray_rayctsl_loss")
    assert not is_known("ray_node_disk_full")


def test_the_statuses_in_alerts_are_the_stores(everything: list[Object]) -> None:
    from rayctsl.jobs.contracts import STATUSES

    texts = re.findall(r'status=~?"([^"]+)"', " ".join(values_of(only(everything, "PrometheusRule"), "expr")))
    assert texts
    assert {status for text in texts for status in text.split("|")} <= set(STATUSES)
