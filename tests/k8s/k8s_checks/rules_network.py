"""Rules: who must reach whom, who must not, and what of it can be seen from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator

from k8s_checks.manifests import ROOT, Object, names_of, of_kind, only, pods_of, values_of
from k8s_checks.operator import Pod, redis_cleanup_labels
from k8s_checks.policies import HERE, Peer, matches, may_connect, peer_of

METADATA = Peer("metadata", ip="169.254.169.254")
INTERNET = Peer("internet", ip="93.184.215.14")
API_SERVER = Peer("API server", ip="10.96.0.1")
DNS, NODE_DNS = Peer("DNS", "kube-system"), Peer("the node's DNS", ip="169.254.20.10")
STRANGER = Peer("a pod of another namespace", "default", {"app.kubernetes.io/component": "service"})
BALANCERS = {"eks": Peer("ALB", ip="192.168.7.9"), "gke": Peer("Google's health check", ip="35.191.4.4")}
Link = tuple[Peer, Peer, int]


def port_of(pod: Pod, name: str) -> int:
    """A container's port by its name: policies are judged by what listens, not by what they say."""
    (found,) = [p["containerPort"] for c in pod.containers for p in c.get("ports", []) if p["name"] == name]
    return int(found)


def by_component(objects: list[Object]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods_of(objects):
        found.setdefault(pod.component, []).append(pod)
    return found


def operator_namespace() -> str:
    """Where README installs the operator."""
    return re.findall(r"kuberay-operator .*--namespace (\S+)", (ROOT / "k8s/README.md").read_text())[0]


def needed(objects: list[Object]) -> Iterator[Link]:
    """Every connection without which something does not work."""
    pods = by_component(objects)
    heads, workers, (service,) = pods["ray-head"], pods["ray-worker"], pods["service"]
    operator = Peer("operator", operator_namespace(), {"app.kubernetes.io/name": "kuberay-operator"})
    for pod in pods_of(objects):
        yield peer_of(pod), DNS, 53
        yield peer_of(pod), NODE_DNS, 53
    for head in heads:
        for source in [peer_of(service), operator, *map(peer_of, pods.get("submitter", []))]:
            yield source, peer_of(head), port_of(head, "dashboard")
        yield peer_of(head), API_SERVER, 443
        yield peer_of(head), API_SERVER, 6443
        for worker in workers:
            yield peer_of(worker), peer_of(head), port_of(head, "gcs-server")
            yield peer_of(head), peer_of(worker), 40000
    for worker in workers:
        yield peer_of(worker), peer_of(workers[0]), 40000  # gloo and NCCL choose their ports
    yield from ((peer_of(data), INTERNET, 443) for data in pods.get("data", []))
    yield from _needed_by_components(objects, pods, service)


def _needed_by_components(objects: list[Object], pods: dict[str, list[Pod]], service: Pod) -> Iterator[Link]:
    http = port_of(service, "http")
    if of_kind(objects, "Ingress", "HTTPRoute"):
        yield Peer("edge", "ingress"), peer_of(service), http
    if "load-balancer" in names_of(objects, "NetworkPolicy"):
        yield BALANCERS["gke" if "cloud-dns" in names_of(objects, "NetworkPolicy") else "eks"], peer_of(service), http
    if "s3://" in str(of_kind(objects, "ConfigMap")):
        for component in ("service", "ray-worker", "submitter", "data"):
            yield from ((peer_of(pod), INTERNET, 443) for pod in pods.get(component, []))
    for redis in pods.get("redis", []):
        spec = only(objects, "RayCluster")["spec"]
        cleanup = Peer("redis cleanup", HERE, redis_cleanup_labels("rayctsl", spec))
        for source in (*map(peer_of, pods["ray-head"]), cleanup):
            yield source, peer_of(redis), port_of(redis, "redis")
    for postgres in pods.get("postgres", []):
        yield peer_of(service), peer_of(postgres), port_of(postgres, "postgres")
    if of_kind(objects, "PodMonitor"):
        prometheus = Peer("Prometheus", "monitoring")
        yield prometheus, peer_of(service), http
        yield from ((prometheus, peer_of(worker), port_of(worker, "metrics")) for worker in pods["ray-worker"])
        for head in pods["ray-head"]:
            yield from (
                (prometheus, peer_of(head), port_of(head, name)) for name in ("metrics", "as-metrics", "dash-metrics")
            )


def what_must_connect_can(objects: list[Object]) -> Iterator[str]:
    policies = of_kind(objects, "NetworkPolicy")
    for source, target, port in needed(objects):
        for protocol in ("UDP", "TCP") if port == 53 else ("TCP",):
            if not may_connect(policies, source, target, port, protocol):
                yield f"{source.name} cannot reach {target.name} at {protocol} {port}"


def what_must_not_connect_cannot(objects: list[Object]) -> Iterator[str]:
    """Everything else between our pods, strangers, the internet and the address that hands out credentials."""
    policies = of_kind(objects, "NetworkPolicy")
    wanted = {(source.name, target.name, port) for source, target, port in needed(objects)}
    pods = pods_of(objects)
    ray = [pod for pod in pods if pod.component in ("ray-head", "ray-worker")]
    for target in pods:
        ports = {p["containerPort"] for c in target.containers for p in c.get("ports", [])} | {22, 10001}
        for source in [STRANGER, INTERNET, *map(peer_of, pods)]:
            if target in ray and source.name in {pod.where for pod in ray}:
                continue  # Ray's nodes are open to each other
            for port in ports:
                if (source.name, target.where, port) not in wanted and may_connect(
                    policies, source, peer_of(target), port
                ):
                    yield f"{source.name} can reach {target.where} at {port}"


def nobody_reaches_further_than_needed(objects: list[Object]) -> Iterator[str]:
    policies = of_kind(objects, "NetworkPolicy")
    wanted = {(source.name, target.name, port) for source, target, port in needed(objects)}
    identity = "workload-identity" in names_of(objects, "NetworkPolicy")
    for pod in pods_of(objects):
        for port in (80, 988):
            if not identity and may_connect(policies, peer_of(pod), METADATA, port):
                yield f"{pod.where} can ask the metadata address for the node's credentials"
        if pod.component not in ("ray-head", "data") and may_connect(policies, peer_of(pod), INTERNET, 80):
            yield f"{pod.where} can reach the internet at 80"
        closed = pod.component != "ray-head" and (pod.where, INTERNET.name, 443) not in wanted
        if closed and may_connect(policies, peer_of(pod), INTERNET, 443):
            yield f"{pod.where} can reach the internet at 443"


def everything_is_closed_first(objects: list[Object]) -> Iterator[str]:
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if closed not in [each["spec"] for each in of_kind(objects, "NetworkPolicy")]:
        yield "no policy closes all pods in both directions"


def policy_ports_are_listened_at(objects: list[Object]) -> Iterator[str]:
    for each in of_kind(objects, "NetworkPolicy"):
        selected = [pod for pod in pods_of(objects) if matches(each["spec"]["podSelector"], pod.labels)]
        listened = {p["containerPort"] for pod in selected for c in pod.containers for p in c.get("ports", [])}
        for rule in each["spec"].get("ingress", []):
            for port in rule.get("ports", []):
                if port["port"] not in listened:
                    yield f"policy {each['metadata']['name']}: nobody listens at {port['port']}"


def selectors_find_pods(objects: list[Object]) -> Iterator[str]:
    labels = [pod.labels for pod in pods_of(objects)]
    for each in objects:
        spec, selectors = each.get("spec", {}), []
        if each["kind"] == "NetworkPolicy":
            rules = [*spec.get("ingress", []), *spec.get("egress", [])]
            peers = [peer for rule in rules for peer in (*rule.get("from", []), *rule.get("to", []))]
            selectors = [p["podSelector"] for p in peers if "podSelector" in p and "namespaceSelector" not in p]
            selectors.append(spec["podSelector"])
        elif each["kind"] in ("PodDisruptionBudget", "PodMonitor", "Deployment", "StatefulSet"):
            selectors = [spec["selector"]]
        for selector in selectors:
            if not any(matches(selector, pod) for pod in labels):
                yield f"{each['kind']} {each['metadata']['name']} selects nothing"


def budgets_guard_what_they_name(objects: list[Object]) -> Iterator[str]:
    wanted = {"ray-head": {"RayCluster/rayctsl head"}, "service": {"Deployment/rayctsl-service"}}
    for each in of_kind(objects, "PodDisruptionBudget"):
        found = {pod.where for pod in pods_of(objects) if matches(each["spec"]["selector"], pod.labels)}
        if found != wanted[each["metadata"]["name"]]:
            yield f"budget {each['metadata']['name']} guards {sorted(found)}"


def services_lead_to_a_port(objects: list[Object]) -> Iterator[str]:
    """A Service's targetPort is a named port of exactly the pods of one component."""
    for each in of_kind(objects, "Service"):
        name, spec = each["metadata"]["name"], each["spec"]
        chosen = [pod for pod in pods_of(objects) if matches({"matchLabels": spec["selector"]}, pod.labels)]
        wanted = {"rayctsl": "service"}.get(name, name.removeprefix("rayctsl-"))
        if {pod.component for pod in chosen} != {wanted}:
            yield f"Service {name} leads to {sorted(pod.where for pod in chosen)}"
        for port in spec["ports"]:
            for pod in chosen:
                if port["targetPort"] not in {p["name"] for p in pod.spec["containers"][0].get("ports", [])}:
                    yield f"Service {name}: {pod.where} has no port {port['targetPort']}"


def only_the_service_is_exposed(objects: list[Object]) -> Iterator[str]:
    ports = {port["name"]: port["port"] for port in only(objects, "Service", "rayctsl")["spec"]["ports"]}
    for each in of_kind(objects, "Ingress"):
        for value in values_of(each, "service"):
            if value["name"] != "rayctsl" or value["port"].get("name") not in ports:
                yield f"the Ingress leads to {value}"
        if "ingressClassName" in each["spec"]:
            yield "the Ingress names a class that the cluster may not have"
    for each in of_kind(objects, "HTTPRoute"):
        for value in [value for values in values_of(each, "backendRefs") for value in values]:
            if value["name"] != "rayctsl" or value["port"] not in ports.values():
                yield f"the HTTPRoute leads to {value}"
    types = {each["spec"].get("type", "ClusterIP") for each in of_kind(objects, "Service")}
    if (types | set(values_of(objects, "serviceType"))) != {"ClusterIP"} or True in set(
        values_of(objects, "enableIngress")
    ):
        yield "a Service is open to the outside"


def monitors_ask_ports_that_exist(objects: list[Object]) -> Iterator[str]:
    for each in of_kind(objects, "PodMonitor"):
        for pod in pods_of(objects):
            names = {p["name"] for c in pod.containers for p in c.get("ports", [])}
            if matches(each["spec"]["selector"], pod.labels):
                asked = {endpoint["port"] for endpoint in each["spec"]["podMetricsEndpoints"]}
                yield from (f"{pod.where} has no port {port}" for port in asked - names)
                missed = {name for name in names if name.endswith("metrics")} - asked
                yield from (f"nobody asks {pod.where} at {port}" for port in missed)
    for each in of_kind(objects, "ServiceMonitor"):
        found = [
            s for s in of_kind(objects, "Service") if matches(each["spec"]["selector"], s["metadata"].get("labels", {}))
        ]
        ports = {port["name"] for service in found for port in service["spec"]["ports"]}
        yield from (f"no Service has {e['port']}" for e in each["spec"]["endpoints"] if e["port"] not in ports)
    for each in of_kind(objects, "PodMonitor", "ServiceMonitor", "PrometheusRule"):
        if not each["metadata"].get("labels", {}).get("release"):
            yield f"a default Prometheus does not select {each['metadata']['name']}"
