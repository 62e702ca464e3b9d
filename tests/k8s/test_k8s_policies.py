"""The reader of network policies, on policies written by hand."""

from __future__ import annotations

from typing import Any

from k8s_checks.policies import HERE, Peer, may_connect

A, B = Peer("a", HERE, {"app": "a"}), Peer("b", HERE, {"app": "b"})
OUTSIDE, METADATA = Peer("outside", ip="8.8.8.8"), Peer("metadata", ip="169.254.169.254")


def policy(types: list[str], selector: dict[str, str] | None = None, **rules: Any) -> dict[str, Any]:
    chosen = {"matchLabels": selector} if selector else {}
    return {"kind": "NetworkPolicy", "spec": {"podSelector": chosen, "policyTypes": types, **rules}}


CLOSED = policy(["Ingress", "Egress"])
FROM_A = policy(
    ["Ingress"],
    {"app": "b"},
    ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": 80}]}],
)
TO_B = policy(["Egress"], {"app": "a"}, egress=[{"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}])


def test_pods_are_open_until_a_policy_selects_them() -> None:
    assert may_connect([], A, B, 80)
    assert not may_connect([CLOSED], A, B, 80)
    assert may_connect([policy(["Ingress"], {"app": "c"})], A, B, 80)


def test_both_ends_must_agree() -> None:
    assert not may_connect([CLOSED, FROM_A], A, B, 80)
    assert not may_connect([CLOSED, TO_B], A, B, 80)
    assert may_connect([CLOSED, FROM_A, TO_B], A, B, 80)
    assert not may_connect([CLOSED, FROM_A, TO_B], A, B, 81)
    assert not may_connect([CLOSED, FROM_A, TO_B], A, B, 80, "UDP")
    assert not may_connect([CLOSED, FROM_A, TO_B], B, A, 80)


def test_labels_of_another_namespace_do_not_count() -> None:
    twin = Peer("twin", "elsewhere", {"app": "a"})
    assert not may_connect([CLOSED, FROM_A], twin, B, 80)
    named = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}}
    assert may_connect([CLOSED, policy(["Ingress"], {"app": "b"}, ingress=[{"from": [named]}])], twin, B, 80)


def test_ranges_have_exceptions() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}
    out = policy(["Egress"], {"app": "a"}, egress=[{"to": [block]}])
    assert may_connect([CLOSED, out], A, OUTSIDE, 443)
    assert not may_connect([CLOSED, out], A, METADATA, 80)
    assert not may_connect([CLOSED, out], B, OUTSIDE, 443)
