"""Network policies as Kubernetes reads them: may this peer connect to that one, at that port?"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from k8s_checks.operator import Pod

Object = dict[str, Any]
HERE = "rayctsl"


@dataclass(frozen=True)
class Peer:
    """One end of a connection: a pod of some namespace, or an address outside.

    Example: Peer("edge", "ingress"), Peer("metadata", ip="169.254.169.254")
    """

    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ip: str = ""


def peer_of(pod: Pod) -> Peer:
    return Peer(pod.where, HERE, pod.labels)


def matches(selector: Object, labels: dict[str, str]) -> bool:
    wanted = {key: [value] for key, value in selector.get("matchLabels", {}).items()}
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In", "only In is understood here"
        wanted[each["key"]] = each["values"]
    return all(labels.get(key) in values for key, values in wanted.items())


def may_connect(policies: list[Object], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Whether the source may send and the target may receive."""
    sends = _allows(policies, "Egress", source, target, port, protocol)
    return sends and _allows(policies, "Ingress", target, source, port, protocol)


def _allows(policies: list[Object], direction: str, at: Peer, other: Peer, port: int, protocol: str) -> bool:
    """One direction, at one end. A pod that no policy of the direction selects is open to all."""
    if at.namespace != HERE:
        return True
    selecting = [
        each["spec"]
        for each in policies
        if direction in each["spec"]["policyTypes"] and matches(each["spec"]["podSelector"], at.labels)
    ]
    key, ends = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    rules = [rule for spec in selecting for rule in spec.get(key, [])]
    return not selecting or any(
        _names(rule.get(ends), other) and _opens(rule.get("ports"), port, protocol) for rule in rules
    )


def _names(ends: list[Object] | None, peer: Peer) -> bool:
    return not ends or any(_is(end, peer) for end in ends)


def _is(end: Object, peer: Peer) -> bool:
    if "ipBlock" in end:
        block = end["ipBlock"]
        return _inside(peer.ip, [block["cidr"]]) and not _inside(peer.ip, block.get("except", []))
    if peer.ip:
        return False
    if "namespaceSelector" in end:
        there = matches(end["namespaceSelector"], {"kubernetes.io/metadata.name": peer.namespace})
    else:
        there = peer.namespace == HERE
    return there and matches(end.get("podSelector", {}), peer.labels)


def _inside(ip: str, ranges: list[str]) -> bool:
    return bool(ip) and any(ipaddress.ip_address(ip) in ipaddress.ip_network(each) for each in ranges)


def _opens(ports: list[Object] | None, port: int, protocol: str) -> bool:
    return not ports or any(
        each.get("port", port) == port and each.get("protocol", "TCP") == protocol for each in ports
    )
